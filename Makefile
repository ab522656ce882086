# The user's face of the build. `make demo` and `make test` are all that a fresh Debian 12 machine needs.
# Everything else stands in CMakeLists.txt and CMakePresets.json.

JOBS ?= $(shell nproc)
DIFFERENTIAL_CASES ?= 1000000
DIFFERENTIAL_SEED ?= $(shell date +%s)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 600
TEST_JOBS ?= 2
BENCH_OPTIONS ?=
RELEASE := build/release
AUXTRAIL := $(RELEASE)/src/cli/auxtrail

.DEFAULT_GOAL := help
.PHONY: help deps release program dev demo test test-continuous bench install fuzz truth-long differential clean

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

deps: ## install the Debian packages that building and testing need
	@scripts/install-deps.sh

release: deps
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS)

# The program alone: no tests, no benchmarks.
program: deps
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS) --target product

dev: deps
	@cmake --preset dev
	@cmake --build --preset dev -j $(JOBS)

demo: program ## record perl at work and print the report: which functions, through which branches
	@scripts/demo $(AUXTRAIL)

test: dev ## build with all warnings on and run every test
	@ctest --preset dev -j $(TEST_JOBS)

test-continuous: deps ## the transparency cases in continuous trace (--unit=continuous)
	@cmake --preset dev -DAUXTRAIL_CONTINUOUS_TESTS=ON
	@cmake --build --preset dev -j $(JOBS)
	@ctest --preset dev -j $(TEST_JOBS) -R '^continuous|transparency_inputs'

bench: release ## what recording costs, and what it gives for it; writes bench-results.json (BENCH_OPTIONS="--parts history": a part)
	@python3 -B bench/bench.py --build $(RELEASE) --output bench-results.json $(BENCH_OPTIONS)

install: program ## install below PREFIX (default /usr/local); DESTDIR is honoured
	@cmake --install $(RELEASE) --prefix $(PREFIX)

fuzz: deps ## every libFuzzer target for FUZZ_SECONDS (default 600) under asan and ubsan
	@scripts/fuzz --seconds $(FUZZ_SECONDS)

truth-long: dev ## the ground-truth comparison over ten times as many steps as `make test` takes
	@AUXTRAIL_TRUTH_SCALE=10 ctest --preset dev -L truth

differential: dev ## decoders against each other over DIFFERENTIAL_CASES (default a million) generated and damaged traces
	@build/dev/tests/differential/decode_differential --cases $(DIFFERENTIAL_CASES) --seed $(DIFFERENTIAL_SEED)
	@build/dev/tests/differential/decode_differential --cases $(DIFFERENTIAL_CASES) --seed $(DIFFERENTIAL_SEED) --mutate

clean: ## remove everything that was built
	@rm -rf build
