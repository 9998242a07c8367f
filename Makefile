# `make` lists the targets. Tools are Go modules run at a fixed version: nothing to install, cached after the first run.
GOLANGCI_LINT_VERSION := v2.15.0

GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

# What the targets below take from the command line, as in `make fuzz FUZZTIME=1m`.
BENCH     ?= .
BENCHTIME ?= 1s
RELAYTIME ?= 10x
COUNT     ?= 1
FUZZTIME  ?= 10s
PKG       ?= ./...
TESTFLAGS ?=
PROBED    ?= .

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# nginx lives in /usr/sbin, which is not on everybody's PATH.
export PATH := $(PATH):/usr/sbin

# Prints the Python of the client environment. The tests find it in OMNITAP_CLIENTS.
clients_python = "$$(testdata/clients/install.sh --path)/bin/python"

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: clients collector ## download the modules; build the Python environment of the test clients, and the Collector of the tests
	go mod download

.PHONY: clients
clients:
	@testdata/clients/install.sh

.PHONY: collector
collector: ## a real OpenTelemetry Collector for the tests, built once into the cache
	@testdata/collector/install.sh

.PHONY: build
build: ## build bin/omnitap; without the driver's library its functions are looked up only where it is there (lazy)
	CGO_ENABLED=1 CGO_CFLAGS='-O2 -g -Wno-deprecated-declarations' go build -trimpath -ldflags '-extldflags=-Wl,-z,lazy' -o bin/omnitap ./cmd/omnitap

.PHONY: build-nocgo
build-nocgo: ## build bin/omnitap-nocgo: static, without the GPU sampler
	CGO_ENABLED=0 go build -trimpath -o bin/omnitap-nocgo ./cmd/omnitap

.PHONY: demo
demo: build ## build and run the demo: no GPU, no root
	bin/omnitap demo

.PHONY: fmt
fmt: ## format the Go code
	$(GOLANGCI_LINT) fmt

.PHONY: check-fmt
check-fmt: ## fail where fmt would change something
	$(GOLANGCI_LINT) fmt --diff

.PHONY: lint
lint: ## go vet, golangci-lint, module tidiness
	go vet -tags store ./...
	$(GOLANGCI_LINT) run ./...
	go mod tidy -diff

# Packages whose tests measure times: one at a time, behind the others. Those of their tests that run in parallel
# measure nothing, and mostly wait.
MEASURING := /cmd/omnitap$$|/exporter/prometheus$$|/proxy$$|/proxy/tap$$|/exporter/(join|twin)$$|/probes$$|/probes/(kernel|shm|zmq|pipe|socket|cuda|sched|proc)$$

.PHONY: test
test: clients collector ## all tests with the race detector; needs gcc, curl, nginx, npm, Chromium, Prometheus and Python 3.11 or 3.12
	@for c in gcc curl nginx node; do command -v $$c >/dev/null || { echo "make test: $$c is missing" >&2; exit 1; }; done
	@export OMNITAP_CLIENTS=$(clients_python); \
	measuring=$$(go list $(PKG) | grep -E '$(MEASURING)' || true); others=$$(go list $(PKG) | grep -vE '$(MEASURING)' || true); \
	[ -z "$$others" ] || go test -race -shuffle=on $(TESTFLAGS) $$others; \
	[ -z "$$measuring" ] || go test -race -p 1 -parallel 4 -shuffle=on $(TESTFLAGS) $$measuring
	go test -run AllocatesNothing ./proxy/...

.PHONY: test-real
test-real: build clients ## drive the real servers through bin/omnitap, and watch their stages (PROBED: which); the first run builds 9 GB of Python
	testdata/real/install.sh
	@python=$(clients_python); \
	for server in vllm-omni sglang-omni; do \
		"$$python" testdata/real/drive.py --server "$$server" --omnitap bin/omnitap; \
	done; \
	"$$python" testdata/real/timing.py --omnitap bin/omnitap; \
	"$$python" testdata/real/transfers_test.py; \
	if [ "$$(id -u)" = 0 ]; then "$$python" testdata/real/probes.py --omnitap bin/omnitap --only '$(PROBED)'; \
	else echo "make test-real: NOT TESTED without root: the stage probes (testdata/real/probes.py)" >&2; fi

# The sound that the waveform checks are studied on, made once into the cache.
quality_corpus = "$${OMNITAP_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/omnitap}/quality"
STUDY := ./proxy/timeline/waveform/internal/study

.PHONY: test-quality
test-quality: ## hold the waveform checks to their margins on 80 minutes of sound; needs espeak-ng, sox and Python
	testdata/quality/corpus.py $(quality_corpus)
	REQUIRE_QUALITY=1 OMNITAP_QUALITY_CORPUS=$(quality_corpus) go test -count 1 -timeout 10m $(TESTFLAGS) $(STUDY)

.PHONY: quality-study
quality-study: ## the whole study of the waveform checks, into proxy/timeline/waveform/STUDY.md
	testdata/quality/corpus.py $(quality_corpus)
	REQUIRE_QUALITY=1 OMNITAP_QUALITY_CORPUS=$(quality_corpus) go test -count 1 -timeout 30m -run '^TestWrite$$' $(STUDY) -write ../../STUDY.md

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	@targets=$$(go test -list '^Fuzz' $(PKG) | awk '/^Fuzz/ { name[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, name[i]; n = 0 }'); \
	[ -n "$$targets" ] || { echo "make fuzz: no fuzz target in $(PKG)" >&2; exit 1; }; \
	while read -r pkg name; do \
		echo "$$name in $$pkg"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null; \
	done <<<"$$targets"

.PHONY: bench
bench: ## benchmarks: readers, probes (as root), join, and relays side by side: BENCH, BENCHTIME, RELAYTIME, COUNT
	go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) ./proxy/... ./probes/... ./exporter/join/... ./exporter/verify/... ./exporter/prometheus/... ./exporter/resources/... ./exporter/telemetry/...
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(RELAYTIME) -count $(COUNT) ./cmd/omnitap

.PHONY: bench-once
bench-once: ## every benchmark a single time, to see that it still runs
	@$(MAKE) --no-print-directory bench BENCHTIME=1x RELAYTIME='1x -short'

.PHONY: test-store
test-store: collector ## spans through the Collector, as configs/collector has it, into a real Jaeger; as root; the first run builds that
	testdata/jaeger/install.sh
	REQUIRE_KERNEL=1 go test -count 1 -tags store -run '^TestJaeger$$' $(TESTFLAGS) ./cmd/omnitap

SOAK ?= 10m

.PHONY: soak
soak: ## 2,000 requests a second for SOAK with OpenTelemetry and 1 % of them sampled: every one accounted for, memory flat
	go test -count 1 -timeout 2h -v -run '^TestSoakExport$$' ./cmd/omnitap -args -soak $(SOAK)

.PHONY: cover
cover: clients ## test coverage of the whole module into out/cover.html
	@mkdir -p out
	OMNITAP_CLIENTS=$(clients_python) go test -coverpkg=./... -coverprofile=out/cover.out $(PKG)
	go tool cover -html=out/cover.out -o out/cover.html
	go tool cover -func=out/cover.out | tail -n 1

# The families of probes, each with an object of its own in bpf/.
BPF := $(addprefix ./probes/,shm zmq pipe socket cuda sched proc)

.PHONY: bpf
bpf: ## compile the BPF objects, which are in the repository; needs clang, llvm and libbpf-dev
	go generate $(BPF)

.PHONY: check-bpf
check-bpf: bpf ## fail where the BPF objects are not what their sources give (Debian 12's clang)
	git diff --exit-code --stat -- $(addsuffix /*_bpfel.*,$(BPF))

.PHONY: test-gpu
test-gpu: build-nocgo ## known numbers of CUDA calls against what the probes see; needs root, an NVIDIA GPU and PyTorch
	python3 testdata/gpu/counts.py --omnitap bin/omnitap-nocgo

.PHONY: build-gpu-tests
build-gpu-tests: ## build the test binaries of test-gpu-power into bin, for a machine without Go
	CGO_CFLAGS='-O2 -g -Wno-deprecated-declarations' go test -c -trimpath -ldflags '-s -w -extldflags=-Wl,-z,lazy' -o bin/gpu-resources.test ./exporter/resources
	CGO_CFLAGS='-O2 -g -Wno-deprecated-declarations' go test -c -trimpath -ldflags '-s -w -extldflags=-Wl,-z,lazy' -o bin/gpu-hardware.test ./probes/host/hardware

.PHONY: test-gpu-power
test-gpu-power: build-gpu-tests ## the GPU sampler, its energy and the ledger against PyTorch and nvidia-smi; needs an NVIDIA GPU, PyTorch and pyarrow
	python3 testdata/gpu/power.py

.PHONY: test-gpu-stock
test-gpu-stock: build-nocgo ## a stock vLLM-Omni server on a GPU that runs already, with its step log: STOCK='--url URL --steps DIR --log FILE'
	python3 testdata/gpu/stock.py --omnitap bin/omnitap-nocgo $(STOCK)

.PHONY: calibration-study
calibration-study: ## how often a calibration is right, over simulated and real loops of known cost (6 minutes), into exporter/calibration/STUDY.md
	go test -count 1 -timeout 10m -run '^TestWriteStudy$$' ./exporter/calibration -write STUDY.md
	OMNITAP_LOOP_STUDY=$(CURDIR)/exporter/calibration/STUDY.md go test -count 1 -timeout 20m -run '^TestLoopStudy$$' ./cmd/omnitap

.PHONY: schema
schema: ## generate the JSON schema of the records from their Go types
	go generate -x -run schema ./...

.PHONY: ci
ci: ## what CI runs, without installing packages
	@.ci/run --no-install

.PHONY: clean
clean: ## remove bin and out; the Go and Python caches stay
	rm -rf bin out
