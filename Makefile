# The two commands of the README, and what a developer repeats. Each does its own set-up on a fresh Debian 12 or Ubuntu 24.04.
#
#   make demo     packages, build, then the whole pipeline on a small checkpoint that the project makes itself
#   make check    packages, build with warnings as errors, every test that needs neither a GPU nor a network
BUILD ?= build/ci
JOBS  ?= $(shell nproc)
DEMO_DIR ?= demo

.PHONY: demo check packages build install sanitize format clean

demo: build
	scripts/demo.sh $(BUILD) $(DEMO_DIR)

check: build
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) -LE 'cuda|multi-node|perf|slow'
	scripts/summary.sh $(BUILD)

packages:
	scripts/packages.sh

build: packages
	cmake --preset ci -B $(BUILD)
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
