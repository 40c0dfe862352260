# test.mk - the tests: check, soak, lint, format; included by the Makefile.
#   make check [ONLY=substring] [SEED=n] [JOBS=n] [CASES=n]   builds what the cases need and runs them, CASES at a time; make test: the same
#   make soak                                       also the long ones
#   make mutations [SAMPLE=n] [SEED=n]              plants bugs in host code and sees whether the cases notice
#   make asan, make tsan                            the cases that make sense with sanitizers, in builds of their own; make sanitize: both
#   make check-aarch64                              builds for aarch64, and runs cases of each kind by qemu
#   make lint                                       format-check, analyse, layout, links of the documentation
#   make format                                     rewrites the sources in the project's style
#   make kernel-times gpu-programs                  programs for boxes with GPUs: docs/measuring.md
SEED  ?= 1
# One more than there are processors: a long compilation is not to be the last alone.
JOBS  ?= $(shell expr $$(nproc) + 1)
# One more still: cases wait most of their time, but not in qemu.
CASES ?= $(shell expr $(JOBS) + 1)
CLANG_FORMAT ?= clang-format
CPPCHECK     ?= cppcheck

TEST := $(BUILD)/test

# collectives.c, and kernels.c with trial.c and long.c, are programs; the other files of test/ranks make up `scenarios`.
TEST_HARNESS_OBJ := $(patsubst test/%.c,$(TEST)/%.o,$(filter-out test/harness/rig.c test/harness/multicast.c,$(wildcard test/harness/*.c)))
# For programs that launch the kernels themselves, and are not linked to NCCL.
TEST_RIG_OBJ := $(TEST)/harness/rig.o $(filter-out %/communicators.o,$(TEST_HARNESS_OBJ)) $(KERNEL_OBJ) $(BUILD)/gen/fatbin.o
TEST_SCENARIO_OBJ := $(patsubst test/%.c,$(TEST)/%.o,$(filter-out test/ranks/collectives.c test/ranks/kernels.c test/ranks/trial.c test/ranks/long.c,$(wildcard test/ranks/*.c)))
TEST_RANKS := $(TEST)/ranks/collectives $(TEST)/ranks/scenarios $(TEST)/ranks/kernels

# A unit test is one file: test/unit/NAME.c, or NAME.cc for what must see CUDA C; what it links to is said here.
TEST_UNITS := $(patsubst test/%.c,$(TEST)/%,$(wildcard test/unit/*.c)) $(patsubst test/%.cc,$(TEST)/%,$(wildcard test/unit/*.cc))
# Clients and fault tests may bring their own rules, in test/*/rules.mk; they add to TEST_PROGRAMS.
TEST_GROUPS := $(TEST)/gpu/group-times $(TEST)/gpu/group-lists
TEST_PROGRAMS := $(TEST_RANKS) $(TEST_UNITS) $(TEST)/gpu/kernel-times $(TEST_GROUPS)
-include $(wildcard test/*/rules.mk)

# Kept, though only a rule by pattern asks for them: some take minutes.
.PRECIOUS: $(TEST)/%.o

$(TEST)/%.o: test/%.c $(GEN)
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -ffp-contract=off -Itest/harness -c -o $@ $<

$(TEST)/%.o: test/%.cc | $(TOOLKIT)
	$(call say,CXX,$<)
	$(Q)mkdir -p $(@D) && $(CXX) -std=c++17 -O1 -g $(CXXWARN) -ffp-contract=off -Itest/emu/seam -Ikernels -Itest/harness \
	    -isystem $(CUDA_HOME)/include -MMD -MP -c -o $@ $<

# Linked as a user's program is: NCCL by name, no run path of its own.
$(TEST)/ranks/collectives: $(TEST)/ranks/collectives.o $(TEST_HARNESS_OBJ) | $(BUILD)/emu/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ -Wl,--allow-shlib-undefined $(BUILD)/emu/libnccl.so.2 -ldl -lm -pthread

$(TEST)/ranks/scenarios: $(TEST_SCENARIO_OBJ) $(TEST_HARNESS_OBJ) | $(BUILD)/emu/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ -Wl,--allow-shlib-undefined $(BUILD)/emu/libnccl.so.2 -ldl -lm -pthread

$(TEST)/ranks/kernels: $(TEST)/ranks/kernels.o $(TEST)/ranks/trial.o $(TEST)/ranks/long.o $(TEST)/harness/multicast.o $(TEST_RIG_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ -ldl -lm -pthread

# Without multicast.o, so it cannot make a multicast object.
$(TEST)/gpu/kernel-times: $(TEST)/gpu/kernel_times.o $(TEST)/gpu/stopwatch.o $(TEST)/gpu/rounding.o $(TEST_RIG_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ -ldl -lm -pthread

# As a user's program is.
$(TEST)/gpu/group-times: $(TEST)/gpu/group_times.o
$(TEST)/gpu/group-lists: $(TEST)/gpu/group_lists.o
$(TEST_GROUPS): $(TEST)/gpu/process.o | $(BUILD)/emu/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ -Wl,--allow-shlib-undefined -L$(BUILD)/emu -l:libnccl.so.2 -l:libcuda.so.1

TEST_UNIT_LIBS := $(TEST)/harness/reference.o $(KERNEL_OBJ) $(DISPATCH_OBJ)

$(TEST)/unit/log_test: $(BUILD)/plugin/base/log.o $(BUILD)/plugin/base/file.o
$(TEST)/unit/sha256_test: $(BUILD)/plugin/base/sha256.o
$(TEST)/unit/selection_test: $(BUILD)/plugin/base/selection.o
$(TEST)/unit/pairs_test: $(BUILD)/plugin/launch/pairs.o $(BUILD)/plugin/launch/fuse.o
$(TEST)/unit/remember_test: $(BUILD)/plugin/tune/remember.o $(BUILD)/plugin/base/file.o $(BUILD)/plugin/base/why.o
$(TEST)/unit/%: $(TEST)/unit/%.o $(TEST_UNIT_LIBS)
	$(call say,LINK,$@)
	$(Q)$(CXX) -o $@ $^ -ldl -lm -pthread

# The kernels with every planted fault, of which a run chooses one: test/mutate/kernels.  Those without one of their own are as
# they are, since compiling takes long.
PLANTED_CU := $(sort $(filter %.cu,$(shell cat test/mutate/kernel_faults.txt)))
TEST_PLANTED := $(TEST)/planted/libbeeline-kernels.so

$(TEST)/planted/made: $(KERNEL_CU) $(KERNEL_CUH) test/mutate/kernels test/mutate/kernel_faults.txt
	$(Q)mkdir -p $(@D) && test/mutate/kernels plant $(@D)/kernels && touch $@

$(patsubst kernels/%,$(TEST)/planted/kernels/%,$(KERNEL_CU) $(KERNEL_CUH)): $(TEST)/planted/made ;

$(PLANTED_CU:%.cu=$(TEST)/planted/%.o): $(TEST)/planted/%.o: $(TEST)/planted/kernels/%.cu | $(TOOLKIT)
	$(call say,PLANT,$<)
	$(Q)$(CXX) -x c++ -std=c++17 -fPIC -Og $(CXXWARN) -include test/mutate/planted.h -Itest/emu/seam -I$(<D) -Ikernels \
	    -isystem $(CUDA_HOME)/include -MMD -MP -c -o $@ $<

$(TEST_PLANTED): $(PLANTED_CU:%.cu=$(TEST)/planted/%.o) $(filter-out $(PLANTED_CU:%.cu=$(BUILD)/emu/kernels/%.o),$(EMU_KERNEL_OBJ))
	$(call say,LINK,$@)
	$(Q)$(CXX) -shared -o $@ $^

# For GPUs: make kernel-times gpu-programs ARCHS=90 BUILD=build-gpu
kernel-times: whole $(TEST)/gpu/kernel-times $(TEST_GROUPS)
gpu-programs: whole $(LIB) $(GPU_PROGRAMS)

test-programs: $(TEST_PROGRAMS) $(TEST_PLANTED)

MAKE_TESTS = $(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD) FOR_TESTS=1

# With CI=true, lint is part of the check.
check: setup-deps
	@$(MAKE_TESTS) $(if $(CI),lint) all emu test-programs
	@BUILD=$(BUILD) test/run $(if $(V),,-q) -j $(CASES) --seed $(SEED) $(if $(CI),--slowest 10) $(ONLY)

test: check

soak: setup-deps
	@$(MAKE_TESTS) all emu test-programs
	@BUILD=$(BUILD) test/run --soak --timeout 600 -j $(CASES) --seed $(SEED) $(ONLY)

# emu-box runs what is built for another machine by qemu-user; not what those programs start, nor what a shell in between does.
# Device code is the same for every host: none is compiled.
AARCH64 := BUILD=build/aarch64 ARCHS=none CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++
AARCH64_CASES := unit/types unit/words unit/staging unit/log unit/selection unit/sha256 /3/ graph_ group_ stream_ later_ comm_ turn_ \
    faults/switch older_driver clients/linked clients/opened clients/symbols clients/needed clients/probed clients/racing clients/forked clients/dlsym
check-aarch64:
	@scripts/setup-deps --aarch64
	@$(MAKE) --no-print-directory -j$(JOBS) $(AARCH64) all emu test-programs
	@BUILD=build/aarch64 test/run $(if $(V),,-q) -j $(JOBS) --seed $(SEED) --timeout 600 $(or $(ONLY),$(AARCH64_CASES))

# Bugs planted in host code, in what make check has built; see test/mutate/mutate.
SAMPLE ?= 100
mutations:
	@test -e $(BUILD)/mutate/coverage.json || BUILD=$(BUILD) test/mutate/mutate coverage
	@BUILD=$(BUILD) test/mutate/mutate sample --sample $(SAMPLE) --seed $(SEED)

asan:
	@BUILD=$(BUILD) test/sanitize/run address
tsan:
	@BUILD=$(BUILD) test/sanitize/run thread
sanitize:
	@$(MAKE) --no-print-directory BUILD=$(BUILD) asan && $(MAKE) --no-print-directory BUILD=$(BUILD) tsan

# What the build and the tests need of Debian: installed where that is allowed, else named.
setup-deps:
	@scripts/setup-deps

FORMATTED = $(shell git ls-files -- '*.c' '*.h' '*.cu' '*.cuh' '*.cc' '*.def' | grep -v '\.def$$')
format:
	$(CLANG_FORMAT) -i $(FORMATTED)
format-check:
	$(call say,LINT,format)
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(FORMATTED)

# test/lint/cppcheck.txt holds what is switched off, each with its reason.
analyse: $(GEN)
	$(call say,LINT,cppcheck)
	$(Q)$(CPPCHECK) --quiet --std=c11 --language=c --enable=warning,portability,performance --inline-suppr -j 2 \
	    --suppressions-list=test/lint/cppcheck.txt --error-exitcode=1 --template='{file}:{line}: {severity}: {message} [{id}]' \
	    -I$(BUILD)/gen -Ikernels -Idispatch -Iplugin -Itest/harness $(wildcard kernels/*.c dispatch/*.c plugin/*/*.c scripts/perf/*.c test/*/*.c test/emu/*/*.c)

lint: format-check analyse
	$(call say,LINT,layout)
	$(Q)scripts/build/check-layout
	$(call say,LINT,docs)
	$(Q)scripts/build/check-docs
	$(call say,LINT,planted faults)
	$(Q)test/mutate/mutate plantable

.PHONY: check check-aarch64 test soak mutations asan tsan sanitize setup-deps kernel-times gpu-programs test-programs format format-check analyse lint
