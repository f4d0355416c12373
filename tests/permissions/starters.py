"""Ways in which programs of a Debian system start another program that their arguments name, and uses that do not.

Compared with the list of GTFOBins. Left out on purpose: programs that only start another one when a person types at a
terminal (`top`, `ncdu`, `telnet`, `journalctl`), and those that run what a file says (`ansible-playbook`).
"""

from __future__ import annotations

STARTS = r"""
ZIPOPT='-T -TT r""m' zip q.zip a
APT_CONFIG=/dev/stdin apt-get update < f
uclampset -m 5 rm x
echo 'r""m victim' > x; bash -c 'sh x'
sed -n 'w x.sh' data; sh x.sh
sort -o x.sh data; sh x.sh
awk '{print > "x.sh"}' data; sh x.sh
cp data z.sh; sh z*.sh
sed -i 's/f/r""m victim/' f; sh f
cp data y.py && timeout 5 python3 y.py
cat data > y.py; python3 -m y
printf 'all:\n\tr""m victim\n' > mk; make -f mk
printf '1e r""m victim' > w.sed; sed -f w.sed a
cp data .bashrc; HOME=$PWD bash -ic :
cp -a d e; e/zap victim
read -r x < y; echo "${x@P}"
BASH_ALIASES[ls]='r""m victim'; shopt -s expand_aliases; eval ls
BASH_CMDS[ls]=$(cat y); ls victim
x=$(cat y); echo $(( ((1)) + x ))
set -- "$(cat y)"; (( $1 ))
mapfile -t < y; echo $((MAPFILE))
read -r < y; echo $((REPLY))
x=$(<y); echo $((x))
y=$(cat z); x=$y; echo $((x))
printf -v x %s "$(cat y)"; echo $((x))
x=$(cat y; id >/dev/null); echo $((x))
x=$(date "+$(cat y)"); echo $((x))
echo $(( $(cat y) ))
a=1234; echo ${a:$(cat y)}
a[$(cat y)]=1
let "x=$(cat y)"
test -v "$(cat y)"
[[ -v $(cat y) ]]
printf -v "$(cat y)" x
read "$(cat y)" <<< x
x=$(cat y); set 1 2; echo "${@:x}"
x=$(cat y); b=(1 2); echo "${b[@]:x}"
git -c 'alias.x=!r""m' x victim
git -c alias.x='!r\m' x victim
env -S 'r""m' victim
env -S 'rm\_victim'
awk 'BEGIN{x=(1)/2;print "rm victim"|"sh";y=3/1}'
awk '{x=$(1)/2; system("rm victim"); y=3/1}' a
cat y | python3 -v
perl -l < y
echo 'exec /bin/r\155 victim' | tclsh -l
ed -v <<< '!r""m victim'
{ sqlite3 db; } < y
while sqlite3 db; do break; done < y
bash -c 'sqlite3 db' < y
cat y | sh -c 'sqlite3 db'
set -o history; history -r y; fc -s
set -o history -o histexpand; history -r y; eval '!!'
PATH=~+/d:$PATH; zap victim
echo 'system("rm victim")' | json_pp -f eval
cpp -wrapper rm,victim c.c
x86_64-linux-gnu-gcc -wrapper rm,victim c.c
perl5.36-x86_64-linux-gnu -e 'system "rm victim"'
for PATH in d; do ls victim; done
for BASH_ENV in x; do export BASH_ENV; bash -c :; done
: ${BASH_ENV:=x}; export BASH_ENV; bash -c :
python3 -im this < x
coproc C { sh; }; cat x >&${C[1]}
read x < y; ((x))
x=$(cat y); echo $((x))
x=$(cat y); [[ x -eq 1 ]]
x=$(cat y); test -v "$x"
x=$(cat y); echo ${a[x]}
x=$(cat y); echo ${!x}
f() { echo $(($1)); }; f "$(cat y)"
/bin/b?sh -c 'r""m victim'
/lib*/ld-*.so* /bin/rm victim
git -c protocol.ext.allow=always ls-remote 'ext::sh -c rm% victim'
node --import 'data:text/javascript,x' x.js
printf '[alias]\nx=!rm victim\n' >> .git/config; git x
echo rm victim > >(sh)
echo rm victim | tee >(sh)
coproc sh; echo "rm victim" >&"${COPROC[1]}"
f() { sh; }; echo 'rm victim' | f
function f { bash -s; }; f <<< 'rm victim'
{ read x; sh; } < script
echo() { cat script; }; echo ls | sh
echo 'rm victim' | sh 3<<< ls
exec 3< <(echo rm victim); sh <&3
sh /dev/fd/3 3<<< 'rm victim'
cd /dev/fd && bash 0
bash /proc/self/fd/0 < <(base64 -d x)
bash --rcfile /dev/stdin -i
sh
while :; do sh; done < <(cat x)
python3 /dev/stdin < x
python3 /proc/self/fd/0 < x
python3 -m asyncio < x
python3 -m pickle /dev/stdin
python3 -m IPython < x
python3 -i x.py < y
node inspect x.js < y
deno run - < x
awk -f - a
awk -f/dev/stdin a
gawk --file=- a
sed -f - a
sed --file=/dev/stdin a
make -f - all
make -f/dev/stdin
make --makefile=- all
m4 < x
cmake -P /dev/stdin
tar cf a.tar -T -
gcc @/dev/stdin
ssh -F /dev/stdin host
GIT_EXTERNAL_DIFF='r""m victim' git diff --no-index a b
GIT_EXTERNAL_DIFF="$x" git diff
LESSOPEN='|rm victim %s' less a
PAGER=sh git log
read GIT_PAGER < x; export GIT_PAGER; git log
printf -v EDITOR %s "$x"; git commit
for PAGER in 'rm victim'; do export PAGER; man ls; done
declare -n v=PAGER; v=x; man ls
export "$x"; git log
PYTHONINSPECT=1 python3 x.py < y
MAKEFLAGS=--eval=x make
PATH=.:$PATH ls
git -c include.path=/dev/stdin log
git -c core.pager="$x" log
tar --use-compress-program="$x" -tf a
echo 'rm victim' > x.sh; sh x.sh
base64 -d a > x.sh; bash x.sh
printf 'rm victim' | tee x.sh; . ./x.sh
base64 -d a > run; ./run
bash +x -c 'rm x'
bash +O extglob -c 'rm x'
bash +o posix +x -ec 'rm x'
bash < <(echo rm x)
bash <(echo rm x)
. <(echo rm x)
echo -n 'rm x' | sh
echo -e 'rm x' | sh
echo -neE 'rm x' | sh
/bin/echo -n 'rm x' | sh
printf -- 'rm x' | sh
sh -c 'echo "\0162m x" | sh'
c=(rm x); "${c[@]}"
su <<< 'rm x'
su - me <<< 'rm x'
echo rm x | sudo -s
sudo -u me -i <<< 'rm x'
unshare -r <<< 'rm x'
script -q log <<< 'rm x'
fakeroot <<< 'rm x'
chroot / <<< 'rm x'
sqlite3 db <<< '.shell rm x'
echo '.shell rm x' | sqlite3 db
psql db < commands
gdb -q <<< 'shell rm x'
vim file <<< ':!rm x'
ex file <<< '!rm x'
parallel ::: 'rm x'
parallel -j 4 < lines
bwrap --ro-bind / / --dev /dev rm x
x86_64 rm x
i386 rm x
qemu-x86_64 /bin/rm x
qemu-aarch64-static /bin/rm x
zip a b -T -TTrm
prove --exec 'rm x'
nodemon -x 'rm x'
concurrently ls 'rm x'
gpg --photo-viewer 'rm x' --list-keys
machinectl shell me@ /bin/rm x
adb shell rm x
dpkg-architecture -c rm x
rails runner code
source <(echo 'rm x')
echo 'rm x' | . /dev/stdin
. /dev/stdin <<< 'rm x'
source /dev/stdin <<< 'rm x'
jobs -x rm x
aoss rm x
gtester ./rm
codex sandbox linux rm x
pidstat -e rm x
enscript -I 'rm x' f
perlbug -e 'rm x'
plymouth ask-for-password --command='rm x'
xdg-user-dir '}; rm x #'
dotnet fsi
curl --engine ./evil.so x
tar $options
printf '\x72m x' | sh
printf '%s x' rm | sh
LD_PRELOAD=./x.so ls
env LD_PRELOAD=./x.so ls
export PERL5OPT='-Mx;system(1)'; perl a.pl
git --exec-path=. status
python3 -Bm timeit x
dc <<< '!rm x'
compgen -C 'rm x' a
compgen -W '$(rm x)'
complete -C 'rm x' a
mapfile -C 'rm x' -c 1 a < b
readarray -C 'rm x' -c1 a < b
readarray -c1 -C'rm x' a < b
hash -p /bin/rm ls; ls x
bind -x '"a":rm x'
enable -f ./evil.so evil
trap 'rm x' EXIT
coproc rm x
exec rm x
PROMPT_COMMAND='rm x' bash -i
BASH_ENV='$(rm x)' bash -c true
PS4='$(rm x)' bash -xc true
export PAGER='rm x'; man ls
declare -x GIT_PAGER='rm x'; git log
test -v 'a[$(rm x)]'
[ -v 'a[$(rm x)]' ]
[[ 'a[$(rm x)]' -eq 0 ]]
printf -v 'a[$(rm x)]' y
unset 'a[$(rm x)]'
let 'a[$(rm x)]'
read 'a[$(rm x)]' <<< y
choom -n 5 -- rm x
choom -n 5 rm x
/lib64/ld-linux-x86-64.so.2 /bin/rm x
/lib/ld-musl-x86_64.so.1 rm x
/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 --library-path /y /bin/rm x
ld.so /bin/rm x
busybox rm x
busybox ash -c 'rm x'
busybox env rm x
toybox rm x
env -S 'rm x'
env --split-string='rm x'
timeout 5 rm x
timeout -k 1 5 rm x
nice rm x
nice -5 rm x
setsid -f rm x
flock f rm x
flock f -c 'rm x'
watch -n1 rm x
watch 'rm x'
parallel rm ::: x
sem rm x
script -c 'rm x' /dev/null
script -q /dev/null -c 'rm x'
ssh -o ProxyCommand='rm x' host
ssh -oProxyCommand='rm x' host
ssh -o 'ProxyCommand rm x' host
ssh -o LocalCommand='rm x' -o PermitLocalCommand=yes host
ssh host rm x
scp -S ./rm a b:
scp -o ProxyCommand='rm x' a b:
sftp -D 'rm x' host
sshfs -o ssh_command='rm x' a b
sshpass -p x ssh host rm x
ssh-agent rm x
tar cf /dev/null a --checkpoint=1 --checkpoint-action=exec='rm x'
tar cf /dev/null a --checkpoint=1 --checkpoint-act=exec='rm x'
tar xf a --to-command='rm x'
tar xf a --to-command 'rm x'
tar -I 'rm x' -xf a
tar -xIrm -f a
tar xIf 'rm x' a
tar --use-compress-program='rm x' -xf a
tar -F 'rm x' -cf a b
tar --rsh-command='rm x' -xf a:b
cpio --rsh-command='rm x' -i -F a:b
git -c alias.x='!rm y' x
git -c core.sshCommand='rm x' fetch
git -ccore.pager='rm x' -p log
git -c core.fsmonitor='rm x' status
git --config-env=alias.x=Y x; Y='!rm z' git x
git config alias.x '!rm y'
git config --global core.editor 'rm x'
git clone -c core.fsmonitor='rm x' a b
git clone --config core.sshCommand='rm x' a
git clone --upload-pack 'rm x' a b
git clone -u 'rm x' a b
git fetch --upload-pack='rm x' a
git push --receive-pack='rm x' a
git push --exec='rm x' a
git ls-remote --upload-pack='rm x' a
git clone 'ext::rm x' b
git rebase -x 'rm x' HEAD~1
git rebase --exec='rm x' HEAD~1
git bisect run rm x
git submodule foreach 'rm x'
git submodule foreach rm x
git filter-branch --tree-filter 'rm x' HEAD
git filter-branch --msg-filter='rm x'
git difftool -x 'rm x'
git difftool --extcmd='rm x'
git grep -O'rm x' a
git grep --open-files-in-pager='rm x' a
git send-email --sendmail-cmd='rm x' a
git archive --remote=a --exec='rm x' HEAD
hg --config alias.x='!rm y' x
hg --config ui.ssh='rm x' pull
svn diff --diff-cmd ./rm
awk 'BEGIN { system("rm x") }'
awk 'BEGIN{system("rm x")}'
awk 'BEGIN { print "x" | "rm x" }'
awk 'BEGIN { "rm x" | getline }'
awk 'BEGIN { f = "system"; @f("rm x") }'
gawk '{ print |& "rm x" }' f
mawk 'BEGIN { system("rm x") }'
awk 'BEGIN { a = 1 / 2; print 3 / 4 | "rm x" }'
awk "BEGIN { $x }"
awk -e 'BEGIN { system("rm x") }'
gawk -l ./evil 1
sed '1e rm x' f
sed -n '1!e rm x' f
sed 's/a/rm x/e' f
sed -e p -e 's/a/rm x/ge' f
sed --expression='1e rm x' f
sed --expr='1e rm x' f
sed -be'1e rm x; i' f
sed "$x" f
sed '/a/{e rm x
}' f
sed 's|a|b|;e rm x' f
vim -c '!rm x' f
vim -c ':!rm x' -c q
vim '+!rm x' f
vi --cmd '!rm x'
ex -c '!rm x' f
view -c '!rm x' f
nvim -es -c '!rm x'
vim.basic -c '!rm x'
emacs --batch --eval '(shell-command "rm x")'
emacs -Q -nw --eval '(x)'
python -c 'import os; os.system("rm x")'
python3 -c 'import os; os.system("rm x")'
python3.11 -Ic 'x'
python3 - <<< 'import os; os.system("rm x")'
echo 'import os' | python3
python3 -m timeit 'x'
perl -e 'system "rm x"'
perl -pe 'system "rm x"' f
perl -ne 'x' f
perl -0777ne 'system "rm x"' f
perl -CSDe 'system "rm x"'
perl -Mx 'y'
perl5.36 -E 'x'
ruby -e 'system "rm x"'
ruby3.1 -e 'x'
ruby -Kue 'system "rm x"'
irb
node -e 'require("child_process").execSync("rm x")'
node -p 'x'
node --eval 'x'
node --eva='x'
nodejs -pe 'x'
php -r 'system("rm x");'
php8.2 -r 'x'
lua -e 'os.execute("rm x")'
lua5.4 -e 'x'
luajit -e 'x'
tclsh <<< 'exec rm x'
expect -c 'spawn rm x'
Rscript -e 'system("rm x")'
R -e 'system("rm x")'
julia -e 'run(`rm x`)'
octave --eval 'system("rm x")'
guile -c '(system "rm x")'
deno eval 'x'
bun -e 'x'
jrunscript -e 'exec("rm x")'
groovy -e '"rm x".execute()'
elixir -e 'x'
erl -eval 'os:cmd("rm x")'
ghc -e 'x'
gnuplot -e 'system("rm x")'
clisp -x '(x)'
sbcl --eval '(x)'
swipl -g 'shell("rm x")'
find . -exec rm x ';'
find . -execdir rm x +
find . -ok rm x ';'
fd a -x rm x
fdfind a --exec rm x
rsync -e 'rm x' a b:
rsync --rsh='rm x' a b:
rsync -avze 'rm x' a b:
rsync --rsync-path='rm x' a b:
zip a b -T -TT 'rm x'
zip a b -T --unzip-command='rm x'
man -P 'rm x' ls
man --pager='rm x' ls
less '+!rm x' f
more '+!rm x' f
make SHELL='rm x'
make SHELL=/bin/rm x
make --eval='$(shell rm x)'
make -E '$(shell rm x)'
make CC='rm x'
gdb -ex '!rm x'
gdb -batch -ex 'shell rm x'
gdb --args rm x
lldb -o 'platform shell rm x'
sqlite3 a '.shell rm x'
sqlite3 -cmd '.shell rm x' a
mysql -e '\! rm x'
psql -c '\! rm x'
lftp -c '!rm x'
smbclient -c '!rm x' //a/b
nmap --script ./evil.nse a
nc -e 'rm x' a 1
ncat --sh-exec 'rm x' a 1
ncat -c 'rm x' a 1
socat - EXEC:'rm x'
socat - 'SYSTEM:rm x'
tcpdump -z ./rm -w x -G 1
sort --compress-program='rm x' f
sort --compress-prog 'rm x' f
split --filter='rm x' f
rg --pre 'rm' a
wget --use-askpass=./rm a
aria2c --on-download-complete=./rm a
yt-dlp --exec 'rm x' a
apt-get -o APT::Update::Pre-Invoke::='rm x' update
apt -o Dpkg::Pre-Invoke='rm x' install a
dpkg --pre-invoke='rm x' -i a
rpm --eval '%(rm x)'
rpm --pipe 'rm x' -qa
docker run image rm x
docker run --rm -v a:b image sh -c 'rm x'
docker exec -it c rm x
docker compose exec c rm x
podman run image rm x
kubectl exec pod -- rm x
lxc exec c -- rm x
systemd-run rm x
systemd-run --pipe rm x
systemd-inhibit rm x
npm exec rm x
npm exec -c 'rm x'
npm x -- rm x
npx rm x
pnpm dlx rm x
yarn exec rm x
uv run rm x
poetry run rm x
bundle exec rm x
cargo --config 'target.x.runner="rm"' run
go test -exec 'rm x' ./...
go vet -vettool=./rm
gcc -wrapper rm,x a.c
gcc -fplugin=./evil.so a.c
cmake -E env rm x
cmake -E time rm x
cmake -E rm x
ip netns exec a rm x
unshare -r rm x
nsenter -t 1 rm x
chroot / rm x
capsh -- -c 'rm x'
cpulimit -l 5 -- rm x
start-stop-daemon --start --exec /bin/rm -- x
run-parts d
crontab f
echo 'rm x' | crontab -
echo 'rm x' | at now
at now <<< 'rm x'
batch <<< 'rm x'
ed <<< '!rm x'
dc -e '!rm x'
fzf --preview 'rm x'
tmux new 'rm x'
tmux new-session -d rm x
screen -dm rm x
xterm -e rm x
pandoc --filter ./rm a
exiftool -if 'system("rm x")' a
pdflatex --shell-escape a.tex
openvpn --script-security 2 --up 'rm x'
certbot renew --pre-hook 'rm x'
restic --password-command 'rm x' check
borg --rsh 'rm x' list a
strace -o '|rm x' ls
strace -f rm x
ltrace rm x
perf stat rm x
valgrind rm x
logsave f rm x
setlock f rm x
msgfilter rm x
hyperfine 'rm x'
entr rm x
distcc rm x
dbus-run-session rm x
torify rm x
proxychains rm x
faketime now rm x
eatmydata rm x
chronic rm x
pexec rm x
multitime rm x
openvt -- rm x
agetty -l /bin/rm tty1
mosh --ssh='rm x' host
sshuttle -e 'rm x' -r a 0/0
vagrant ssh -c 'rm x'
nix-shell --run 'rm x'
nix develop -c rm x
direnv exec . rm x
rustup run stable rm x
"""

STILL_RUN = r"""
zip -q q.zip a
uclampset -m 5 ls
start=$(date +%s); make; echo $(( $(date +%s) - start ))s
echo $(( $(ls | wc -l) - 1 ))
[[ $(git status --porcelain | wc -l) -eq 0 ]] && echo clean
read a b <<< "$(echo 1 2)"; echo "$a"
x=$(cat VERSION); echo "v${x%%.*}"
s=abcdef; echo "${s:0:3}"
arr=(a b c); echo "${arr[1]} ${#arr[@]} ${arr[@]:1:2}"
python3 gen.py > data.json && python3 use.py data.json
gcc -O2 -o prog c.c && ./prog
cp .env.example .env && npm start
sed -i 's/a/b/' x.py && git diff x.py
awk '{print > "out.txt"}' data; wc -l out.txt
sort -o data data; head data
awk '{ if ($1 > 3) print ($2)/2 }' data  # a / b
env -S 'ls -l' a
git -c alias.x='!"ls"' x
perl -v
python3 -V
HOME=/tmp npm ci
set -x; ls
fc -l
PATH=~/bin:$PATH; x
date --date @120024000
screen -list | grep -q x
find . -print0 | tar --null -T - -cf a.tar
find . -print0 | while read -d $'\0' file; do cp "$file" b; done
read -r -p "Delete $x?" answer
n=$(wc -l < f); echo $((n+1))
for i in $(seq 3); do echo $((i*2)); done
x=abc; echo ${x:0:1}
x=$(cat f); echo "$x"
"$DIR"/tool.sh a
coproc cat; echo x
git ls-remote https://example.com/x
cat data | python3 x.py
cat data | python3 x.py -
cat data | bash x.sh
cat data | bash x.sh -
cat data | awk -f x.awk -
cat data | sed s/a/b/ -
cat data | python3 -m json.tool
cat data | make -f x.mk all
cat data | tar xzf -
git --no-pager log
GIT_PAGER=cat git log
PAGER= git log
git -c core.pager=cat log
git -c user.name="$NAME" commit -m x
git commit -F -
EDITOR=true git commit
CC=gcc make
f() { grep x; }; cat a | f
cat a > >(grep x)
ls | tee >(wc -l) | grep x
read -r line < f
export PATH="$HOME/bin:$PATH"
PATH=/usr/local/bin:$PATH make
python3 -m http.server 8000
python3 -m mypackage.tool x
python3 -Wignore x.py
echo hello > x.txt; cat x.txt
printf 'ls -la' > x.sh; sh x.sh
base64 -d a > x.bin; file x.bin
bash +x script.sh
bash -x script.sh rm
bash < script.sh
. ./env.sh
echo -n hello | sh
echo -n 'ls -la' | bash
a=(b c); ls "${a[0]}"
su -c ls me <<< hello
echo hello | sudo tee x
sudo -u me tee x <<< hello
unshare -r ls <<< hello
sqlite3 db 'select 1'
parallel -j4 gzip ::: a b
parallel gzip < list
bwrap --ro-bind / / ls
qemu-img info disk
gpg --list-keys
prove -v t
source venv/bin/activate
jobs
jobs -l
hash -r
compgen -c
complete -p
mapfile -t a < rm
trap - EXIT
export PAGER=cat; man ls
test -v x
[ -v x ]
choom -p 1
choom -n 5 -- ls rm
/lib64/ld-linux-x86-64.so.2 --list /bin/ls
/lib64/ld-linux-x86-64.so.2 /bin/ls rm
busybox ls rm
env -S 'ls rm'
timeout 5 ls rm
flock f ls rm
ssh -o StrictHostKeyChecking=no host ls rm
ssh -p 22 host uptime
scp -P 22 rm b:
tar czf rm.tgz rm
tar -xzf a.tgz -C rm
tar -I zstd -xf a
tar cf a --checkpoint=1 --checkpoint-action=dot b
git log
git status
git rm x
git add rm
git commit -m 'rm x'
git commit -m 'one
rm x'
git -c user.name=bot commit -m x
git -C rm log
git switch -c rm
git checkout -b rm
git push -u origin main
git clone https://example.com/rm.git
git rebase main
git grep -n rm
git config user.name rm-bot
git submodule update --init
git diff "$x"
git add "$x"
awk '{print $1}' f
awk -F: '/rm|ls/ { print $1, $3 / 2 }' f
awk '$1 ~ /a|b/ || $2 > 3 { n += $4 / 2 } END { print n / NR "|" }' f
awk 'NR > 1 && !seen[$0]++' rm
awk -v x=rm -f script.awk f
sed -n 1,20p f
sed -i 's/rm/ls/g' f
sed -bn --expr='s/rm/ls/p' --line-length=5 f
sed -i.bak -E 's|(a+)/e|\1e|; /rm/d; $!N' f
sed -e 's/[ab]e/x/' -e '2,4d' f
sed '3i\
hello x' f
sed 'y/abc/xyz/;s/a/b/2p' f
vim --version
python3 script.py rm
python3 script.py -c rm
python3 -m pytest -q -k rm
python3 -m pip install x
python3 -W ignore -X dev script.py
python3 --version
python3 -Bm pytest
printf 'ls x\n' | sh
printf '%s\n' rm
git --exec-path
perl script.pl -e rm
perl -Ilib script.pl
perl -0777 -CSD script.pl
ruby script.rb
node server.js -e rm
node --version
node --require ./a.js server.js
php script.php
lua script.lua
Rscript script.R
find . -name rm -print
fd rm
rsync -av a b:rm
rsync -a --delete a/ b/
zip -r rm.zip rm
unzip rm.zip
man rm
less f
make -j4 rm
make CC=gcc test
make
gdb --version
sqlite3 a 'select 1'
psql -l
nmap -p 80 host
nc -z host 80
sort -k 2 rm
split -l 5 rm
rg -n rm
wget https://example.com/rm
curl -o rm https://example.com
curl -fsS "$url"
make "$target"
tar czf a.tgz -- $files
dotnet build
apt-get install -y rm-tools
docker ps
docker rm x
docker build -t rm .
docker run --rm image ls
kubectl get pods
npm install rm
npm test
npm run build
npx tsc --noEmit
cargo test
go test ./...
go build -o rm .
gcc -O2 -o rm a.c
cmake -B build -S .
cmake --build build
crontab -l
tmux ls
xargs --version
pdflatex a.tex
systemctl status rm
ip addr
dc --version
strace ls rm
uv run pytest -q
poetry run pytest
"""


def lines_of(table: str) -> list[str]:
    """The lines of a table; one that ends inside single quotes has another one behind it."""
    found: list[str] = []
    for line in table.strip("\n").split("\n"):
        is_open = bool(found) and found[-1].count("'") % 2 == 1
        found[-1:] = [f"{found[-1]}\n{line}"] if is_open else [*found[-1:], line]
    return found
