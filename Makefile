# What can be done here; `make help` lists it.
#
# Building and testing need Go and nothing else: generated code is checked in.
# Linting and generating need tools, which are built from the Go module proxy,
# each into a folder of .tools/ that carries its version, so that a changed
# version below is a new folder and nothing has to be thrown away by hand.

GO ?= go

# In a pod, a service takes requests for 3 seconds after SIGTERM. Tests need no such time.
unexport KUBERNETES_SERVICE_HOST

BUF_VERSION := v1.55.1
GOTESTSUM_VERSION := v1.13.0
GOLANGCI_LINT_VERSION := v2.15.0
NFPM_VERSION := v2.43.4
CYCLONEDX_VERSION := v1.10.0
PROTOC_GEN_GO_VERSION := v1.36.12
PROTOC_GEN_GO_GRPC_VERSION := v1.6.2

TOOLS := $(CURDIR)/.tools
BUF := $(TOOLS)/buf-$(BUF_VERSION)/buf
NFPM := $(TOOLS)/nfpm-$(NFPM_VERSION)/nfpm
CYCLONEDX := $(TOOLS)/cyclonedx-gomod-$(CYCLONEDX_VERSION)/cyclonedx-gomod
GOTESTSUM := $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION)/gotestsum
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)/golangci-lint
PROTOC_GEN_GO := $(TOOLS)/protoc-gen-go-$(PROTOC_GEN_GO_VERSION)/protoc-gen-go
PROTOC_GEN_GO_GRPC := $(TOOLS)/protoc-gen-go-grpc-$(PROTOC_GEN_GO_GRPC_VERSION)/protoc-gen-go-grpc
PROTO_TOOLS := $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC)
# buf finds the generators by PATH.
PROTO_PATH := $(dir $(PROTOC_GEN_GO)):$(dir $(PROTOC_GEN_GO_GRPC)):$(PATH)

# The plugin in Python, and what makes its environment: another folder of .tools/
# for another Python or other requirements.
PYTHON ?= python3
PYTHON_PLUGIN := examples/python-plugin
RAY_EXPORTER := examples/ray-exporter
# The recording of real Ray Serve, the same way.
RAY := test/ray
RAY_RECORDING := $(RAY)/testdata/ray-2.60.json

# Without cgo a binary runs on any distribution, so that a plugin can be
# dropped into somebody else's container. The commit is left out where git can
# not tell it (an unpacked archive): asking for it would fail the build.
BUILD = CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=$$(git rev-parse -q --verify HEAD >/dev/null 2>&1 && echo true || echo false)

# SMALL is for the binaries that are shipped. Without the symbol table and debugging
# data a panic still has its stack. grpcnotrace leaves out the pages of
# golang.org/x/net/trace, whose templates keep the linker from dropping methods.
SMALL = -tags grpcnotrace -ldflags='-s -w'

# What a report says that it is of. The go command does not find the commit in a
# work tree of git's (git worktree), so make asks git itself.
BUILT_OF = $$(git rev-parse -q --verify HEAD 2>/dev/null)$$(test -z "$$(git status --porcelain 2>/dev/null)" || echo ' with changes')

# Extra arguments for `go test`, and the packages: make test PKG=./host TESTFLAGS='-run Restart -count=20'
PKG ?= ./...
TESTFLAGS ?=
# auto: with -race wherever a C compiler exists; yes: insist on it; no: without.
RACE ?= auto
# For `make chaos`: the same seed draws the same faults. 20s is enough to see
# each kind once or nearly so, and takes up to a minute more to recover.
CHAOS_SEED ?= 1
CHAOS_DURATION ?= 2m
# For `make peers`: names, without any all of them.
PEERS ?=
# For `make microbench`, and `make bench`.
BENCH ?= .
BENCHTIME ?= 1s
BENCHFLAGS ?=
# The peer that the relay is compared with, if `make peers` has built it.
BENCH_COLLECTOR = -collector $(or $(SERVETRACE_PEERS),.tools/peers)/otelcol/otelcol
# For `make soak`; 2m is enough for a check.
SOAK_DURATION ?= 1h

.DEFAULT_GOAL := all
.PHONY: all build plugins examples python python-test python-wheel python-binaries bench-python ray test-ray-export seeds test test-contrib test-collector test-release release test-bench test-browser docs-site promtool peers test-peers hazards chaos cluster run demo bench bench-quick bench-gate soak build-bench microbench size draw-comments lint generate checkgenerate clean help

all: build test lint ## Build, test and lint, in some twenty minutes: the default of make

build: plugins examples ## Put the commands, examples and plugins into bin/
	$(BUILD) $(SMALL) -o bin/ ./cmd/...

plugins: ## Put the plugins into bin/plugins/, as small as they can be
	$(BUILD) $(SMALL) -o bin/plugins/ ./plugins/...

# RELEASE names platforms: make release RELEASE=linux/amd64. COSIGN_KEY names a key of cosign
# to sign with.
release: $(NFPM) $(CYCLONEDX) ## Make archives, packages, images, a Homebrew formula, bills of materials and checksums in bin/release/
	NFPM=$(NFPM) CYCLONEDX=$(CYCLONEDX) deploy/release.sh $(RELEASE)

# Without COSIGN_KEY, a key that only tests use signs. RELEASE='linux/amd64 linux/arm64' also
# reads the images for arm64 back.
test-release: $(GOTESTSUM) ## Make packages and images of this platform, sign, install, run and remove them: needs root
	@$(MAKE) --no-print-directory release RELEASE="$(or $(RELEASE),linux/$$($(GO) env GOARCH))" COSIGN_KEY=$(or $(COSIGN_KEY),test/deploy/sign/testdata/empty-password.key)
	@$(call gotest,test/deploy,./...,-count=1 -run 'Package|Image|Formula|Checksums|Licenses')

examples: ## Put the examples into bin/
	$(BUILD) -o bin/ ./examples/...

# venv sets $$venv to the environment in .tools/$(1)-… with the packages of $(2), and
# makes it if it is missing.
define venv
venv=$(TOOLS)/$(1)-$$({ $(PYTHON) -VV; cat $(2); } | cksum | cut -d ' ' -f 1); \
	if [ ! -e "$$venv/complete" ]; then \
	  rm -rf "$$venv" && $(PYTHON) -m venv "$$venv" && \
	  "$$venv/bin/python" -m pip install --quiet --only-binary :all: --no-deps -r $(2) && \
	  "$$venv/bin/python" -m pip check && touch "$$venv/complete"; \
	fi
endef

# linkvenv links $(1)/.venv to $$venv.
define linkvenv
if [ -d $(1)/.venv ] && [ ! -L $(1)/.venv ]; then echo 'make python: $(1)/.venv is a folder, not a link of ours, and stays'; \
	else ln -sfn "$$venv" $(1)/.venv; fi
endef

# The Go tests of plugins in Python are skipped if this was not run.
python: ## Make the environments of examples/python-plugin and examples/ray-exporter; a notice where there is no Python
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo 'make python: no $(PYTHON), so the tests of $(PYTHON_PLUGIN) are skipped'; exit 0; }; \
	$(PYTHON) -c 'import venv, ensurepip, sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || { echo 'make python: $(PYTHON) is older than 3.9 or lacks venv or pip, so the tests of $(PYTHON_PLUGIN) are skipped'; exit 0; }; \
	$(call venv,python,$(PYTHON_PLUGIN)/requirements.txt) && $(call linkvenv,$(PYTHON_PLUGIN)) && \
	$(call venv,exporter,$(RAY_EXPORTER)/requirements.txt) && \
	"$$venv/bin/python" -m pip install --quiet --only-binary :all: --no-deps opentelemetry-ext-honeycomb==1.3.0 && \
	$(call linkvenv,$(RAY_EXPORTER))

# PYTHON_TEST names tests: make python-test PYTHON_TEST='-k Relay'.
python-test: python-binaries ## Test the Python package in python/: needs Python 3.11 and its venv
	@$(call venv,package,python/requirements.txt) && \
	cd python && "$$venv/bin/python" -B -W error::ResourceWarning -m unittest discover -b -s tests $(PYTHON_TEST)

python-wheel: python-binaries ## Build the wheel of python/ for this platform, with the commands in it: bin/servetrace-*.whl
	@$(call venv,package,python/requirements.txt) && \
	work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && cp -R python "$$work/python" && rm -rf "$$work/python/build" && cp LICENSE NOTICE "$$work/python" && \
	rm -f bin/servetrace-*.whl && \
	"$$venv/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation --no-index \
	  --config-settings="--build-option=--plat-name=$$("$$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_platform())')" \
	  -w bin "$$work/python" && ls bin/servetrace-*.whl

# In actors of real Ray as well, after make test-ray-export or make ray.
bench-python: python-binaries ## Measure the CPU per span in Python, against OpenTelemetry's batch processor and OTLP exporter
	@$(call venv,package,python/requirements.txt) && cd python && PYTHONPATH=$$PWD "$$venv/bin/python" -B bench/cost.py && \
	site=$$("$$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	for complete in $(TOOLS)/ray-*/complete; do [ -e "$$complete" ] || continue; \
	  out=$$(PYTHONPATH=$$PWD:$$site "$${complete%/complete}/bin/python" -B bench/cost.py --ray 2>&1) || { echo "$$out"; exit 1; }; \
	  echo "$$out" | sed -n '/^CPU/,$$p'; done

# The commands that the wheel carries; git ignores them.
python-binaries:
	$(BUILD) $(SMALL) -o python/servetrace/bin/ ./cmd/servetrace
	$(BUILD) $(SMALL) -o python/servetrace/bin/plugins/ ./plugins/...

# The test of $(RAY) reads the recording, and needs none of this.
ray: ## Record the spans of real Ray Serve anew, for test/ray: needs Python, some 300 MB, and some five minutes the first time
	@$(call venv,ray,$(RAY)/requirements.txt) && \
	"$$venv/bin/python" -B $(RAY)/record.py $(RAY_RECORDING)

# RAY_SPANS=2000 is a short form.
RAY_SPANS ?= 20000
test-ray-export: python-wheel ## Export the spans of real Ray Serve through the relay, with kills, and compare them (RAY_SPANS=2000: fewer): needs Python
	@$(call venv,ray,$(RAY)/requirements.txt) && \
	"$$venv/bin/python" -B test/rayexport/run.py bin/servetrace-*.whl $(RAY_SPANS)

# Without the environments of `make ray` and `make python`, their parts are not run.
seeds: build ## Run all that the project's seeds name, on real Ray Serve too after make ray, and print the table
	@ray=; for complete in $(TOOLS)/ray-*/complete; do [ ! -e "$$complete" ] || ray=$${complete%/complete}/bin/python; done; \
	python='$(CURDIR)/examples/ray-exporter/.venv/bin/python'; [ -x "$$python" ] || python=; \
	$(GO) -C test/seeds test -count=1 -timeout 15m -args -table -bin '$(CURDIR)/bin' -ray "$$ray" -python "$$python"

# -race needs cgo, a C compiler and a platform that has it; the dry run asks
# the go command about all but the compiler.
# Many tests wait for processes, so twice as many packages as processors run at a
# time. host takes longest, so it starts first.
test: $(GOTESTSUM) ## Run the tests, with -race wherever a C compiler exists
	@$(call gotest,.,$(if $(filter ./...,$(PKG)),./host) $(PKG),-p $$((2 * $$(getconf _NPROCESSORS_ONLN))))
	@echo 'make test: the real peers of test/peers are not part of it: make peers, make test-peers'

# Modules of their own, so that ours depends on none of their packages.
test-contrib: $(GOTESTSUM) ## Run OpenTelemetry's own exporters and processors, and those of others, in plugins
	@$(call gotest,test/contrib,./...)
	@$(call gotest,test/contrib/otlp-client-plugin,./...)
	@$(call gotest,contrib/autoexport,./...)
	@$(call gotest,test/deploy,./...)
	@echo "$(GO) -C test/deploy/helm test -timeout 15m $(TESTFLAGS) ./..."; \
	$(AS_PEERS) $(call gotestsum,test/deploy/helm) -timeout 15m $(TESTFLAGS) ./...

# The Collector's packages take long to compile. The modules in the loop
# are compiled as `make peers` does, also for the linter, so that they are compiled once,
# and without -race.
AS_PEERS = CGO_ENABLED=0 GOFLAGS='-buildvcs=false -trimpath'
test-collector: $(GOTESTSUM) ## Run the Collector's exporters and processors in plugins, and test the exporter for a Collector
	@$(call gotest,contrib/collectorplugin,./...)
	@$(call gotest,contrib/pluginexporter,./...)
	@for module in contrib/collectorplugin/examples contrib/ottl; do \
	  echo "$(GO) -C $$module test -timeout 15m $(TESTFLAGS) ./..."; \
	  $(AS_PEERS) $(call gotestsum,$$module) -timeout 15m $(TESTFLAGS) ./... || exit 1; \
	done

# BROWSER_SCREENSHOTS names a folder for pictures of the pages.
BROWSER := test/browser
test-browser: build ## Look at the status page and at waterfalls in Chromium; a notice where node, npm or Chromium is missing
	@for tool in node npm; do command -v $$tool >/dev/null || { echo "make test-browser: no $$tool, so the pages are not looked at"; exit 0; }; done; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { echo 'make test-browser: no Chromium, so the pages are not looked at: apt-get install chromium'; exit 0; }; \
	packages=$(TOOLS)/browser-$$(cksum < $(BROWSER)/package-lock.json | cut -d ' ' -f 1); \
	[ -e "$$packages/complete" ] || { rm -rf "$$packages" && mkdir -p "$$packages" && cp $(BROWSER)/package*.json "$$packages" && \
	  { (cd "$$packages" && npm ci --ignore-scripts --no-audit --no-fund) || { echo 'make test-browser: npm cannot have its packages, so the pages are not looked at'; exit 0; }; } && \
	  touch "$$packages/complete"; } && \
	NODE_PATH="$$packages" node $(BROWSER)/pages.mjs bin $(BROWSER_SCREENSHOTS)

DOCS_SITE := deploy/docs-site
docs-site: ## Make the docs site with its search in bin/docs, and check its links; a notice where there is no Python
	@$(PYTHON) -c 'import venv, ensurepip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { echo 'make docs-site: no $(PYTHON) of 3.10 or newer with venv, so the site is not made'; exit 0; }; \
	$(call venv,docs,$(DOCS_SITE)/requirements.txt) && \
	"$$venv/bin/python" -m mkdocs build --strict -f $(DOCS_SITE)/mkdocs.yml -d $(CURDIR)/bin/docs

# Of Debian's package, which is not installed: promtool has too many dependencies to build.
PROMTOOL_VERSION := 2.42.0+ds-5+deb12u1
promtool: ## Get promtool for the tests of the alerts; a notice where it cannot be had
	@[ ! -e $(TOOLS)/promtool-$(PROMTOOL_VERSION)/promtool ] || exit 0; work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && cd "$$work" && \
	apt-get download -q prometheus=$(PROMTOOL_VERSION) && dpkg -x prometheus_*.deb . && \
	mkdir -p $(TOOLS)/promtool-$(PROMTOOL_VERSION) && mv usr/bin/promtool $(TOOLS)/promtool-$(PROMTOOL_VERSION)/ || \
	echo 'make promtool: it cannot be had from this Debian, so the alerts are not tested by it'

# A module of its own too: what each peer is built of is in its recipe package.
# SERVETRACE_PEERS names another folder than .tools/peers, for several checkouts.
peers: ## Build the real Collector, Datadog agent core and others that test-peers needs
	@GOFLAGS=-buildvcs=false GOWORK=off $(GO) -C test/peers run ./build -go $(GO) $(PEERS)

# Its tests take no figure: they hold statistics, gate, reports, and that no span
# goes missing.
test-bench: $(GOTESTSUM) ## Test the benchmark itself
	@$(call gotest,bench,./...)

# The plugins that bin/ holds are not what go test caches by: -count=1.
test-peers: build $(GOTESTSUM) ## Run the plugins against the real peers that are built (see peers); the rest is skipped
	@$(call gotest,test/peers,$(PKG),-count=1)

# gotestsum begins the command line of go test in folder $(1). It prints the line of a
# package when that package has ended, while go test waits for those before it.
gotestsum = $(GOTESTSUM) --format standard-$(if $(filter -v,$(TESTFLAGS)),verbose,quiet --hide-summary skipped) --raw-command -- $(GO) -C $(1) test -json

# gotest runs the tests of packages $(2) in folder $(1), with more flags in $(3).
define gotest
race=; \
	if [ '$(RACE)' != no ]; then \
	  cc=$$($(GO) env CC); \
	  if command -v "$${cc%% *}" >/dev/null 2>&1 && $(GO) build -race -n -o /dev/null errors >/dev/null 2>&1; then race=-race; \
	  elif [ '$(RACE)' = yes ]; then echo 'make test: RACE=yes, but the race detector needs cgo and a C compiler' >&2; exit 1; \
	  else echo 'make test: no C compiler, so without -race'; export CGO_ENABLED=0; fi; \
	fi; \
	echo "$(GO) -C $(1) test $$race -timeout 15m $(3) $(TESTFLAGS) $(2)"; \
	$(call gotestsum,$(1)) $$race -timeout 15m $(3) $(TESTFLAGS) $(2)
endef

# docs/internals/hazards.md says how to read what it prints.
hazards: ## Run the tests of the table in docs/internals/hazards.md and print it with results (HAZARD=8: one row)
	$(GO) run ./test/hazards $(if $(HAZARD),-hazard $(HAZARD)) $(if $(filter no,$(RACE)),-race=false)

chaos: build ## Break plugins at random under load, kill a host with a spool 200 times, and break processors for two minutes (CHAOS_SEED=1, CHAOS_DURATION=2m)
	$(BUILD) -o bin/ ./test/chaos
	bin/chaos -seed $(CHAOS_SEED) -duration $(CHAOS_DURATION)
	SERVETRACE_TEST_CYCLES=full $(GO) test -v -count=1 -run '^Test(CyclesLeakNothing|RealCyclesLeaveNothing|Hazard32ManyStartsAtOnce|Kill9OfTheHostWithASpool|ProcessorsUnderLoadWithFaults)$$' ./host

# A module of its own: what it builds stays in the cache folder of the user, by version.
# CLUSTER_TEST='-run TestWholeAppPerPod/scale' names tests; CLUSTER_TEST=-keep leaves the bed.
cluster: ## Test on a real Kubernetes of two nodes on this machine: needs Linux and root, some 40 minutes the first time
	@if [ "$$(uname)" != Linux ]; then echo 'make cluster: skipped: it needs Linux'; exit 0; fi; \
	$(GO) -C test/cluster test -count=1 -timeout 60m -v -bed $(CLUSTER_TEST)

demo: build ## Send real requests to a real service and show their spans
	bin/demo

# A port other than 8000: SERVE_HTTP_PORT=8080 make run. Another plugin:
# SERVE_TRACING_EXPORTER_PLUGIN=./mine make run.
run: build ## Serve examples/hello until Ctrl-C, its spans printed by the console plugin
	@SERVE_TRACING_EXPORTER_PLUGIN="$${SERVE_TRACING_EXPORTER_PLUGIN-console}" exec bin/hello

# A module of its own, with our peers in it: bench/README.md. BENCHFLAGS are
# those of bin/bench/bench run (-h lists them).
bench: build-bench ## Measure everything against its peers, in some ten minutes: bin/bench/out/report.md
	bin/bench/bench run $(BENCH_COLLECTOR) $(BENCHFLAGS)

bench-quick: build-bench ## Measure the headline claims, in two minutes
	bin/bench/bench run $(BENCH_COLLECTOR) -quick -out bin/bench/quick $(BENCHFLAGS)

soak: build-bench ## Watch memory while the sink is down (SOAK_DURATION=1h): bin/bench/soak/soak.md
	bin/bench/bench soak -for $(SOAK_DURATION)

bench-gate: build-bench ## Hold ratios and allocations to looser bounds, on any machine: for CI
	bin/bench/bench gate $(BENCHFLAGS)

build-bench: ## Put the benchmark's programs into bin/bench/
	$(BUILD) $(SMALL) -o bin/bench/plugins/ ./plugins/otlp ./plugins/datadog
	$(BUILD) $(SMALL) -o bin/bench/ ./cmd/servetrace
	cd test/contrib/otlp-client-plugin && $(BUILD) -o ../../../bin/bench/plugins/thirdparty .
	cd bench && $(BUILD) -ldflags "-X 'main.builtOf=$(BUILT_OF)'" -o ../bin/bench/ . && $(BUILD) -o ../bin/bench/plugins/ ./benchplugin ./benchprocessor

microbench: ## Run the go benchmarks (BENCH=regexp, PKG=./host, BENCHTIME=1s)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem $(TESTFLAGS) $(PKG)

size: ## Count the product's lines of Go that are neither blank nor comment
	@$(GO) run ./test/size

draw-comments: ## Print 60 of the product's comments, drawn by the hash of the commit, for a reader who judges them (SEED=text)
	@$(GO) run ./test/size -draw 60 -seed $(or $(SEED),$$(git rev-parse HEAD))

lint: $(GOLANGCI_LINT) ## Run golangci-lint as .golangci.yml says
	$(GOLANGCI_LINT) run ./...
	cd test/contrib && $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd contrib/autoexport && $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd test/deploy && $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd test/deploy/helm && $(AS_PEERS) $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd test/cluster && $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd contrib/collectorplugin && $(AS_PEERS) $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd contrib/collectorplugin/examples && $(AS_PEERS) $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd contrib/pluginexporter && $(AS_PEERS) $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd contrib/ottl && $(AS_PEERS) $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd test/contrib/otlp-client-plugin && $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd test/peers && $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd test/peers/ddagent && $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd test/peers/connect && $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd bench && $(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...

generate: $(PROTO_TOOLS) ## Write internal/gen and the code of examples/grpc anew from their .proto files
	PATH="$(PROTO_PATH)" $(BUF) generate

# Generates beside the work tree, so that it changes nothing and also works
# where there are other changes. buf breaking starts with the first tag.
checkgenerate: $(PROTO_TOOLS) ## Check the .proto files, and that the code made of them is fresh and go.mod tidy
	$(BUF) lint
	$(BUF) format --diff --exit-code
	@tag=$$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || exit 0; \
	echo "$(notdir $(BUF)) breaking --against $$tag"; \
	$(BUF) breaking --against ".git#tag=$$tag"
	@fresh=$$(mktemp -d) || exit 1; trap 'rm -rf "$$fresh"' EXIT; \
	PATH="$(PROTO_PATH)" $(BUF) generate -o "$$fresh" || exit 1; \
	for made in internal/gen examples/grpc/translatev1; do \
	  diff -r $$made "$$fresh/$$made" || { echo "$$made is stale: run make generate" >&2; exit 1; }; \
	done
	$(GO) mod tidy -diff
	$(GO) -C test/contrib mod tidy -diff
	$(GO) -C test/contrib/otlp-client-plugin mod tidy -diff
	$(GO) -C contrib/autoexport mod tidy -diff
	$(GO) -C test/deploy mod tidy -diff
	$(GO) -C test/deploy/helm mod tidy -diff
	$(GO) -C test/cluster mod tidy -diff
	$(GO) -C contrib/collectorplugin mod tidy -diff
	$(GO) -C contrib/collectorplugin/examples mod tidy -diff
	$(GO) -C contrib/ottl mod tidy -diff
	$(GO) -C contrib/pluginexporter mod tidy -diff
	$(GO) -C test/peers mod tidy -diff
	$(GO) -C test/peers/ddagent mod tidy -diff
	$(GO) -C test/peers/connect mod tidy -diff
	$(GO) -C bench mod tidy -diff

clean: ## Remove what was built; the tools in .tools/ stay
	rm -rf bin

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

# Each tool is built in its own module, not in ours, so that its dependencies
# never touch go.mod. -mod=mod and the like from the environment do not apply.
$(BUF):
	GOFLAGS= GOBIN=$(dir $@) $(GO) install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)

$(GOLANGCI_LINT):
	GOFLAGS= GOBIN=$(dir $@) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

$(GOTESTSUM):
	GOFLAGS= GOBIN=$(dir $@) $(GO) install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)

$(NFPM):
	GOFLAGS= GOBIN=$(dir $@) $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)

$(CYCLONEDX):
	GOFLAGS= GOBIN=$(dir $@) $(GO) install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION)

$(PROTOC_GEN_GO):
	GOFLAGS= GOBIN=$(dir $@) $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)

$(PROTOC_GEN_GO_GRPC):
	GOFLAGS= GOBIN=$(dir $@) $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC_VERSION)
