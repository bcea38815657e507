# The two commands of the README, and what a developer repeats. Each does its own set-up on a fresh Debian 12 or Ubuntu 24.04.
#
#   make demo     packages, build, then the whole pipeline on the small model that the project trained itself
#   make check    packages, build with warnings as errors, every test that needs neither a GPU nor a network
BUILD ?= build/ci
JOBS  ?= $(shell nproc)
DEMO_DIR ?= demo

.PHONY: demo check packages configure build install sanitize format clean

# Only the tools and the developer tool that the demo starts: no test is compiled for it.
DEMO_TARGETS = dsf-fetch dsf-verify dsf-pack-engram dsf-preflight dsf-serve dsf-bench dsf-hub
demo: configure
	cmake --build $(BUILD) -j $(JOBS) --target $(DEMO_TARGETS)
	scripts/demo.sh $(BUILD) $(DEMO_DIR)

check: build
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) -LE 'cuda|multi-node|perf|slow'
	scripts/summary.sh $(BUILD)

packages:
	scripts/packages.sh

configure: packages
	cmake --preset ci -B $(BUILD)

build: configure
	cmake --build $(BUILD) -j $(JOBS)

install: build
	cmake --install $(BUILD)

# ASan+UBSan over everything, TSan over what has threads. Slow: not part of check.
sanitize: packages
	cmake --preset asan && cmake --build build/asan -j $(JOBS) && ctest --preset asan -j $(JOBS)
	cmake --preset tsan && cmake --build build/tsan -j $(JOBS) && ctest --preset tsan -j $(JOBS)

format:
	git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

clean:
	rm -rf build $(DEMO_DIR)
