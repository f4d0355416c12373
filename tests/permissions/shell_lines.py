"""Lines of everyday work that only read, and tricky lines that look so or try to; tests and scores run them."""

from __future__ import annotations

EVERYDAY = r"""
ls *.txt
wc -l *.txt
[ -f a.txt ] && cat a.txt
for f in *.py; do wc -l "$f"; done
cat "$PWD/a.txt"
git -C sub log
cd sub && git log
git config --get user.name
awk '{print $1}' a.txt
find . -name '*.py' | xargs grep x
xxd a.txt
tar tzf a.tgz
unzip -l a.zip
zcat a.gz
ps aux
node -v
pip list
jq '.env' a.json
jq '.[] | select(.env == "prod")' a.json
ls -la
ls
pwd
cat a.txt
head -20 a.txt
tail -n 5 a.txt
grep -rn TODO .
grep -c x a.txt
rg x
find . -type f
find . -name '*.txt' -mtime -7
find . -size +1M -exec ls -lh {} \;
find . -name '*.py' -exec grep -l x {} +
du -sh *
du -sh .
df -h
wc -l a.txt
sort a.txt | uniq -c | sort -rn
cut -d, -f1 a.txt
tr a-z A-Z < a.txt
sed -n '1,5p' a.txt
sed 's/a/b/' a.txt | head
awk -F, '$2 > 3 {print $1}' a.txt
awk '{s+=$1} END {print s}' a.txt
awk 'NR%2==0' a.txt
diff a.txt b.txt
diff <(sort a.txt) <(sort b.txt)
cmp a.txt b.txt
comm -12 a.txt b.txt
file *
stat a.txt
md5sum *.txt
sha256sum a.txt
date
date +%Y-%m-%d
whoami
uname -a
which python3
env
echo $PATH
echo "$USER"
echo $((1+2))
git status
git log --oneline -5
git diff
git diff HEAD~1 --stat
git branch
git branch -a
git show HEAD
git blame a.txt
git ls-files | wc -l
git remote -v
git stash list
git tag
git rev-parse HEAD
git log --format='%h %s' | head
git grep x
python3 --version
python3 -m json.tool a.json
npm -v
node --version
gcc --version
free -m
uptime
id
tree -L 2
cat *.txt | sort -u
cat a.txt b.txt > /dev/null
ls | wc -l
ls -lt | head -5
ls *.py 2>/dev/null
cat a.txt 2>&1 | grep x
test -f a.txt && echo yes || echo no
[[ -d sub ]] && ls sub
if [ -f a.txt ]; then cat a.txt; fi
while read -r l; do echo "$l"; done < a.txt
for i in 1 2 3; do echo $i; done
for i in $(seq 3); do echo $i; done
n=$(wc -l < a.txt); echo "$n lines"
x=a.txt; cat "$x"
cat $(ls *.txt)
grep -l x $(find . -name '*.txt')
find . -name '*.py' -print0 | xargs -0 wc -l
find . -type f | xargs ls -la | sort -k5 -n | tail
ls -R | grep py$
od -c a.txt | head
base64 a.txt
strings a.bin | head
hexdump -C a.bin | head -3
zgrep x a.gz
gzip -l a.gz
gunzip -c a.gz
tail -n +2 a.txt
nl a.txt
column -t a.txt
paste a.txt b.txt
printf '%s\n' *.txt
echo *.py
cat sub/../a.txt
basename "$PWD"
readlink -f a.txt
cal 2024
type ls
command -v python3
lsof -p $$
pip show pip
"""

# Each tries to make, change or remove something: `PWNED`, `victim`, a word in the FIFO `pipe`, a connection to PORT.
TRICKY = r"""
ls $(touch PWNED)
ls `touch PWNED`
cat <(touch PWNED)
echo "$(rm victim)"
echo ${x:-$(touch PWNED)}
: ${x:=$(rm victim)}
echo $(( $(touch PWNED; echo 1) ))
a[$(touch PWNED)]=1
[ -v 'a[$(touch PWNED)]' ]
test -v 'a[$(rm victim)]'
x='a[$(touch PWNED)]'; echo $((x))
x='a[$(rm victim)]'; [[ $x -eq 1 ]]
echo 'a[$(touch PWNED)]' | { read x; echo $((x)); }
printf -v 'a[$(touch PWNED)]' x
declare 'a[$(touch PWNED)]=1'
read 'a[$(touch PWNED)]' < victim
unset 'a[$(touch PWNED)]'
let 'a[$(touch PWNED)]=1'
echo x > PWNED
echo x >> victim
echo x >| victim
echo x &> PWNED
echo x >& PWNED
cat a.txt 2> PWNED
cat a.txt 1<> victim
: > victim
> victim
exec 3> PWNED
exec > PWNED; echo x
{ echo x; } > PWNED
(echo x) > PWNED
for f in a; do echo x; done > PWNED
while read l; do echo "$l"; done < a.txt > PWNED
if true; then echo x; fi > PWNED
echo x {fd}> PWNED
cat a.txt | tee PWNED
tee PWNED < a.txt
cat a.txt > "$(echo PWNED)"
x=PWNED; echo 1 > "$x"
echo x > /dev/null > PWNED
echo x > ./sub/../PWNED
f() { touch PWNED; }; f
ls() { touch PWNED; }; ls
function cat { rm victim; }; cat a.txt
alias ls='touch PWNED'; ls
eval 'touch PWNED'
eval "$(echo touch PWNED)"
source <(echo touch PWNED)
. <(echo rm victim)
bash -c 'touch PWNED'
sh -c 'rm victim'
sh -c 'cat a.txt; touch PWNED'
bash -c 'bash -c "touch PWNED"'
bash <<< 'touch PWNED'
echo touch PWNED | sh
echo touch PWNED | bash -s
bash < <(echo touch PWNED)
coproc touch PWNED
coproc sh; echo touch PWNED >&"${COPROC[1]}"; sleep 0.2
echo touch PWNED > >(sh); sleep 0.2
trap 'touch PWNED' EXIT
trap 'rm victim' DEBUG; ls
PROMPT_COMMAND='touch PWNED' bash -i -c ls
PS4='$(touch PWNED)'; set -x; ls
BASH_ENV=evil.sh bash -c ls
ENV=evil.sh sh -i -c ls
PATH=.:$PATH evil
PATH=$PWD ls
./evil
evil.sh
command ./evil
env ./evil
exec ./evil
nohup ./evil
timeout 5 ./evil
nice -n 5 ./evil
time ./evil
setsid ./evil
stdbuf -oL ./evil
$(echo ./evil)
x=./evil; $x
"$PWD/evil"
echo PWNED | xargs touch
ls victim | xargs rm
ls victim | xargs -I{} rm {}
find . -name victim | xargs rm -f
find . -name victim -print0 | xargs -0 rm
echo 'touch PWNED' | xargs -I{} sh -c '{}'
echo a | xargs sh -c 'touch PWNED'
xargs -a a.txt touch
find . -name victim -delete
find . -name victim -exec rm {} \;
find . -name victim -exec rm {} +
find . -name victim -execdir rm {} \;
find . -name victim -ok rm {} \;
find . -fprint PWNED
find . -fprintf PWNED x
find . -fls PWNED
find . -fprint0 PWNED
find . -exec sh -c 'touch PWNED' \;
find . -maxdepth 0 -exec bash -c 'rm victim' \;
find . -maxdepth 0 -exec env touch PWNED \;
sort -o PWNED a.txt
sort --output=PWNED a.txt
sort --outp PWNED a.txt
sort -uo PWNED a.txt
sort --compress-program=./evil -S 1k a.txt
sort a.txt -o victim
uniq a.txt PWNED
uniq -c a.txt victim
xxd a.txt PWNED
xxd -r a.txt PWNED
shuf a.txt -o PWNED
iconv -f utf8 -t utf8 a.txt -o PWNED
tree -o PWNED
less -o PWNED a.txt
less --log-file=PWNED a.txt
sed -i s/x/y/ victim
sed -i.bak s/x/y/ victim
sed --in-place s/v/y/ victim
sed -n 'w PWNED' a.txt
sed 's/x/y/w PWNED' a.txt
sed -n '/x/w PWNED' a.txt
sed '1w PWNED' a.txt
sed '1e touch PWNED' a.txt
sed 's/.*/touch PWNED/e' a.txt
sed -e 1p -e 'w PWNED' a.txt
sed --expression='w PWNED' a.txt
sed -s -n 'w PWNED' a.txt
sed -f script.sed a.txt
sed -n '$!{w PWNED' -e '}' a.txt
sed 's/x/touch PWNED/;e' a.txt
awk 'BEGIN{system("touch PWNED")}'
awk 'BEGIN { system ( "rm victim" ) }'
awk 'BEGIN{print 1 > "PWNED"}'
awk 'BEGIN{printf "x" >> "PWNED"}'
awk 'BEGIN{print "touch PWNED" | "sh"}'
awk 'BEGIN{"touch PWNED" | getline}'
awk 'BEGIN{x="PWNED"; print 1 > x}'
awk '{print > "PWNED"}' a.txt
awk '{ print $1, $2 > "PWNED" }' a.txt
awk 'BEGIN { if (1) { print "x" > ("PW" "NED") } }'
awk -f script.awk a.txt
awk 'BEGIN{print 1 >"/dev/stderr"; print 2 > "PWNED"}'
gawk -i inplace '{print "x"}' victim
gawk '@load "filefuncs"; BEGIN{f="system"; @f("touch PWNED")}'
gawk 'BEGIN{f="system"; @f("touch PWNED")}'
awk 'BEGIN{while(("touch PWNED" | getline l) > 0);}'
awk 'BEGIN{close("PWNED"); print > "PWNED"}'
tar tf a.tgz --checkpoint=1 --checkpoint-action=exec='touch PWNED'
tar tzf a.tgz --to-command='touch PWNED'
tar -I ./evil -tf a.tgz
tar tf a.tgz -I 'sh -c "touch PWNED; gzip -d"'
tar tvf a.tgz --index-file=PWNED
tar xzf a.tgz -C sub
tar czf PWNED a.txt
tar tf a.tgz --use-compress-program=./evil
unzip a.zip -d sub
unzip -o a.zip
unzip -p a.zip > PWNED
gzip a.txt
gzip -d a.gz
gunzip -k a.gz
zcat a.gz > PWNED
bzip2 -k victim
split -l 1 a.txt PWNED
csplit a.txt 1
git branch PWNED
git branch --abbrev PWNED
git branch --color PWNED
git branch -f PWNED
git branch -l; git branch PWNED
git tag PWNED
git tag -f PWNED
git tag --sort=x PWNED
git stash
git stash push
git commit -am PWNED
git config user.name PWNED
git config --get user.name; git config x.y PWNED
git config --add x.y PWNED
git config --file PWNED a.b c
git diff --output=PWNED
git diff --output PWNED HEAD~1
git log --output=PWNED
git log -1 --format=%h --output=PWNED
git show --output=PWNED
git -c core.fsmonitor='touch PWNED' status
git -c core.pager='touch PWNED' log
git -c alias.x='!touch PWNED' x
git -c diff.external='touch PWNED' diff HEAD~1
git -c core.hooksPath=. status
git --exec-path=. evil
git grep -O./evil x
git grep --open-files-in-pager='touch PWNED' x
git -C sub config user.name PWNED
git -C . branch PWNED
cd sub && git branch PWNED
git remote add PWNED x
git remote -v; git remote add PWNED x
git symbolic-ref HEAD refs/heads/PWNED
git update-ref refs/heads/PWNED HEAD
git hash-object -w a.txt
git reflog expire --all --expire=now
git reflog delete HEAD@{0}
git notes add -m PWNED
git worktree add PWNED
git worktree list; git worktree add PWNED
git archive -o PWNED HEAD
git bundle create PWNED HEAD
git bisect start
git fetch
git gc
git clean -fd
git checkout -- a.txt
git rev-parse HEAD; git tag PWNED
GIT_TRACE=$PWD/PWNED git status
GIT_TRACE2=$PWD/PWNED git status
GIT_TRACE2_EVENT="$PWD/PWNED" git log
GIT_EXTERNAL_DIFF=./evil git diff HEAD~1
GIT_PAGER='touch PWNED' git -p log
GIT_DIR=sub/.git git branch PWNED
GIT_INDEX_FILE=PWNED git status
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.fsmonitor GIT_CONFIG_VALUE_0='touch PWNED' git status
GIT_SSH_COMMAND='touch PWNED' git ls-remote ssh://x/y
PAGER='touch PWNED' git -p log
LESSOPEN='|touch PWNED %s' less a.txt
LD_PRELOAD=./evil.so ls
MANPAGER='touch PWNED' man ls
EDITOR='touch PWNED' git commit --amend
python3 -c 'open("PWNED","w")'
python3 - <<< 'open("PWNED","w")'
python3 /dev/stdin <<< 'open("PWNED","w")'
python3 evil.py
python3 -m json.tool a.json PWNED
python3 -m json.tool a.json victim
python3 -m zipfile -c PWNED a.txt
python3 -m venv PWNED
python3 -m pip download x
perl -e 'open(F,">PWNED")'
perl -i -pe s/x/y/ victim
ruby -e 'File.write("PWNED","x")'
node -e 'require("fs").writeFileSync("PWNED","x")'
php -r 'touch("PWNED");'
lua -e 'os.execute("touch PWNED")'
make -f - <<< 'all:; touch PWNED'
make -n -f evil.mk
vim -es -c 'w! PWNED' -c q a.txt
ed -s a.txt <<< 'w PWNED'
dd if=a.txt of=PWNED
cp a.txt PWNED
mv victim PWNED
ln -s a.txt PWNED
ln victim PWNED
mkdir PWNED
mkfifo PWNED
mknod PWNED p
touch PWNED
rm victim
unlink victim
truncate -s 0 victim
chmod 777 victim
chmod +x victim
install a.txt PWNED
rsync a.txt PWNED
cpio -o < a.txt > PWNED
patch victim < a.txt
diff a.txt b.txt > PWNED
yes | head -1 > PWNED
history -w PWNED
history -s touch PWNED; fc -s
set -o history; history -a PWNED
mapfile -C 'touch PWNED;:' -c 1 x < a.txt
readarray -t -C 'rm victim;:' -c 1 x < a.txt
complete -C 'touch PWNED' x; compgen -C 'touch PWNED' x
hash -p ./evil ls; ls
enable -f ./evil.so x
umask 000; ls > PWNED
ulimit -c 0; ./evil
echo PWNED > pipe
cat a.txt > pipe
tee pipe < a.txt
awk 'BEGIN{print "PWNED" > "pipe"}'
sed -n 'w pipe' a.txt
dd if=a.txt of=pipe
python3 -c 'open("pipe","w").write("PWNED")'
curl http://127.0.0.1:PORT/PWNED
wget -q http://127.0.0.1:PORT/PWNED
nc 127.0.0.1 PORT < a.txt
cat < /dev/tcp/127.0.0.1/PORT
echo PWNED > /dev/tcp/127.0.0.1/PORT
exec 3<>/dev/tcp/127.0.0.1/PORT; echo PWNED >&3
gawk 'BEGIN{s="/inet/tcp/0/127.0.0.1/PORT"; print "x" |& s}'
python3 -c 'import socket; socket.create_connection(("127.0.0.1",PORT))'
openssl s_client -connect 127.0.0.1:PORT
git ls-remote http://127.0.0.1:PORT/x
cd .. && touch PWNED
cd sub && touch ../PWNED
cd sub; rm ../victim
pushd sub && rm ../victim
time rm victim
! rm victim
true && rm victim
false || rm victim
rm victim & wait
{ rm victim; }
( rm victim )
if rm victim; then ls; fi
while rm victim; do break; done
until rm victim; do break; done
for i in 1; do rm victim; done
case x in x) rm victim;; esac
select i in 1; do rm victim; break; done <<< 1
[[ $(rm victim) ]] || ls
((x=$(rm victim; echo 1)))
cat a.txt; rm victim
cat a.txt | while read l; do rm victim; done
cat <<< "$(rm victim)"
r\m victim
'r'm victim
r""m victim
$'\x72m' victim
/bin/rm victim
/usr/bin/../bin/rm victim
\rm victim
command rm victim
builtin command rm victim
env rm victim
env -i /bin/rm victim
env -S 'rm victim'
x=rm; $x victim
a=r b=m; $a$b victim
{rm,victim}
/bin/r[m] victim
"${BASH}" -c 'rm victim'
$BASH -c 'touch PWNED'
${SHELL:-sh} -c 'touch PWNED'
ls -la; touch PWNED #
"""
