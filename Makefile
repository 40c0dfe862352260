# Builds Beeline; test/test.mk has what tests it.  `make help` prints these lines, and those there:
#   make [ARCHS="80 90 100f"] [V=1] [WERROR=1]      the library and beeline-perf, in build/; V=1 shows commands
#   make CUDA_DRIVER=12.4 ...                       for drivers of CUDA 12.4 and later, not of 13.0 and later alone
#   make emu                                        also the emulated box
#   make demo                                       a sweep on this box's GPUs, else on an emulated box
#   make install [PREFIX=DIR] [DESTDIR=DIR]         the library, the commands and the documentation
#   make uninstall [PREFIX=DIR] [DESTDIR=DIR]       removes what make install installs
#   make wheel                                      a Python package of it, in build/
#   make clean                                      removes build/
#   make help                                       this list
#
# Tests need no GPU code but that it compiles: they have a build of their own, for one architecture, hardly optimised, a sample of the
# kernels (kernels/core/instantiate.cuh).  FOR_TESTS=1 makes it, or parts of it, whatever the goals.
FOR_TESTS ?= $(if $(filter check test soak mutations asan tsan sanitize,$(MAKECMDGOALS)),1)
TESTING := $(filter 1,$(FOR_TESTS))
NOT_FOR_TESTS := $(filter demo install wheel kernel-times gpu-programs,$(MAKECMDGOALS))
ifneq ($(and $(TESTING),$(NOT_FOR_TESTS)),)
$(error make $(NOT_FOR_TESTS) needs a whole build, not one for tests: neither FOR_TESTS=1 nor check, soak and the like are accepted beside it)
endif
BUILD   ?= $(if $(TESTING),build/check,build)
PREFIX  ?= /usr/local
DESTDIR ?=
PYTHON  ?= python3
# Machine code for each (100f: for all of the family of 100, which has more instructions), and PTX of the last for what comes after.
# none: no device code at all, which takes no minutes, for the emulated box alone: there the kernels are those compiled for the host.
ARCHS   ?= $(if $(TESTING),90,80 90 100f)
A_SAMPLE := -DBL_SAMPLE
NVCCFLAGS ?= $(if $(TESTING),--Ofast-compile=max $(A_SAMPLE))

# What a compiler of CUDA 13 makes is for drivers of CUDA 13 (docs/limits.md).  For older ones NVRTC of CUDA 12 compiles the kernels.
ifneq ($(filter-out 12.4,$(CUDA_DRIVER)),)
$(error CUDA_DRIVER=$(CUDA_DRIVER) is not accepted: 12.4, or nothing for drivers as new as the toolkit)
endif

# All processors, unless -j says otherwise.
ifeq (0 ,$(MAKELEVEL) $(findstring -j,$(MAKEFLAGS)))
MAKEFLAGS += -j$(shell nproc)
endif

Q = $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-6s %s\n' $(1) '$(2)')

# A toolkit, and nccl.h: what NVCC, CUDA_HOME and NCCL_HOME say, else where they usually lie, else from PyPI, once for all builds.
FETCHED  ?= build
WHEELS   ?= scripts/build/wheels.txt
TOOLKITS ?= /usr/local/cuda /opt/cuda
HEADERS  ?= /usr/local/include /usr/include
FOUND    := $(firstword $(filter %/bin/nvcc,$(if $(NVCC),$(shell command -v $(lastword $(NVCC))))) \
                        $(wildcard $(addsuffix /bin/nvcc,$(TOOLKITS))) $(FETCHED)/cuda/bin/nvcc)
CUDA_HOME ?= $(FOUND:/bin/nvcc=)
NVCC     ?= $(CUDA_HOME)/bin/nvcc
NCCL_H   := $(firstword $(wildcard $(addsuffix /nccl.h,$(addsuffix /include,$(NCCL_HOME) $(CUDA_HOME)) $(HEADERS))) \
                        $(FETCHED)/nccl/include/nccl.h)
NVRTC    := $(if $(CUDA_DRIVER),$(FETCHED)/nvrtc)
# What is compiled against the toolkit's headers comes after it.
TOOLKIT  := $(filter %/bin/nvcc,$(NVCC))

# The folder of that very header; the compiler knows those of the system.
NCCL_INCLUDE := $(addprefix -isystem ,$(filter-out /usr/include/ /usr/local/include/,$(dir $(NCCL_H))))

WARN    := -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes -Wshadow -Wno-unused-parameter $(if $(filter 1,$(WERROR)),-Werror)
CFLAGS  ?= -O2 -g
# -iquote: no header of ours is to come before one of the system.
INCLUDES := -I$(BUILD)/gen -Ikernels -iquote dispatch -iquote plugin $(NCCL_INCLUDE) -isystem $(CUDA_HOME)/include
ALL_CFLAGS = -std=gnu11 -fPIC -fvisibility=hidden -pthread $(WARN) $(CFLAGS) $(INCLUDES) -MMD -MP
CXXWARN := -Wall -Wextra -Wno-unused-parameter -Wno-unknown-pragmas $(if $(filter 1,$(WERROR)),-Werror)

LIB     := $(BUILD)/libbeeline.so
PERF    := $(BUILD)/beeline-perf
COMMAND := $(BUILD)/beeline
EMU     := $(BUILD)/emu/libcuda.so.1 $(BUILD)/emu/libnvidia-ml.so.1 $(BUILD)/emu/libnccl.so.2 $(BUILD)/emu/libbeeline-kernels.so \
           $(BUILD)/emu/old/libnccl.so.2 $(BUILD)/emu/new/libnccl.so.2

KERNEL_CU  := $(wildcard kernels/*.cu)
KERNEL_CUH := $(wildcard kernels/*/*.cuh)
KERNEL_OBJ := $(patsubst kernels/%.c,$(BUILD)/kernels/%.o,$(wildcard kernels/*.c))
DISPATCH_OBJ := $(patsubst dispatch/%.c,$(BUILD)/dispatch/%.o,$(wildcard dispatch/*.c))
PLUGIN_OBJ := $(patsubst plugin/%.c,$(BUILD)/plugin/%.o,$(wildcard plugin/*/*.c)) $(BUILD)/gen/abi_stubs.o $(BUILD)/gen/fatbin.o
PERF_OBJ   := $(patsubst scripts/perf/%.c,$(BUILD)/perf/%.o,$(wildcard scripts/perf/*.c))
GEN        := $(BUILD)/gen/abi_table.h $(BUILD)/gen/thresholds.h

all: $(LIB) $(PERF) $(COMMAND)
emu: all $(EMU)

# --- what is not there ---
$(FETCHED)/cuda/bin/nvcc:
	@PYTHON='$(PYTHON)' scripts/build/fetch-cuda compiler $(WHEELS) $(FETCHED)/cuda

# Not both at once: each may install pip.
$(FETCHED)/nccl/include/nccl.h: | $(filter $(FETCHED)/%,$(TOOLKIT))
	@PYTHON='$(PYTHON)' scripts/build/fetch-cuda header $(WHEELS) $(FETCHED)/nccl

$(FETCHED)/nvrtc/cuda_nvrtc/include/nvrtc.h: | $(filter $(FETCHED)/%,$(TOOLKIT) $(NCCL_H))
	@PYTHON='$(PYTHON)' scripts/build/fetch-cuda nvrtc $(WHEELS) $(FETCHED)/nvrtc

%/bin/nvcc:
	@echo "no CUDA compiler at $@: install the CUDA toolkit, 12.8 or later, and name it in CUDA_HOME, or unset that, for the one of PyPI" >&2; exit 1

# --- generated ---
$(GEN): | $(TOOLKIT)

$(BUILD)/gen/abi_table.h $(BUILD)/gen/abi_stubs.c &: plugin/real/abi.py plugin/real/nccl_later.h plugin/real/abi_own.txt $(NCCL_H)
	$(call say,GEN,abi_table.h abi_stubs.c)
	$(Q)mkdir -p $(@D) && $(PYTHON) plugin/real/abi.py $(NCCL_H) plugin/real/nccl_later.h plugin/real/abi_own.txt $(BUILD)/gen

$(BUILD)/gen/thresholds.h: dispatch/embed.py $(wildcard dispatch/thresholds/*.tune)
	$(call say,GEN,$(@F))
	$(Q)mkdir -p $(@D) && $(PYTHON) dispatch/embed.py $@ $(wildcard dispatch/thresholds/*.tune)

# Ranks with libraries of other sources do not work together.
SOURCES := $(sort $(wildcard $(addsuffix /*.[ch],plugin/* dispatch kernels) plugin/*/*.def plugin/real/abi* plugin/nccl/export.map dispatch/*.def \
                           dispatch/thresholds/*.tune kernels/*.def) $(KERNEL_CU) $(KERNEL_CUH)) $(NCCL_H)
$(BUILD)/gen/build_id.h: $(SOURCES) VERSION
	$(call say,GEN,$(@F))
	$(Q)mkdir -p $(@D) && printf '#define BEELINE_VERSION "%s"\n#define BL_BUILD_ID "%.12s"\n' "$$(cat VERSION)" "$$(cat $(SOURCES) | sha256sum)" > $@
$(BUILD)/plugin/base/version.o $(BUILD)/perf/options.o: $(BUILD)/gen/build_id.h

# --- kernels: one fatbin, embedded ---
last_arch = $(patsubst %f,%,$(lastword $(ARCHS)))
GENCODE = $(foreach a,$(ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) -gencode arch=compute_$(last_arch),code=compute_$(last_arch)
# COMPRESS=size makes the library a fifth as large, and a process's first communicator 20 ms later, for the driver decompresses what
# it loads (docs/benchmarks/h200-x1-2026-11-23.md).
COMPRESSED := $(if $(COMPRESS),-Xfatbin -compress-all --compress-mode=$(COMPRESS))
COMPRESSED_BY_NVRTC := $(if $(COMPRESS),-compress-all -compress-mode=$(COMPRESS))
FATBINS := $(if $(filter none,$(ARCHS)),$(BUILD)/gen/none.fatbin,$(patsubst kernels/%.cu,$(BUILD)/kernels/%.fatbin,$(KERNEL_CU)))

# Those whose machine code scripts/build/check-machine-code reads are optimised in every build.
CODE_CHECKED := allreduce_oneshot_nvls allreduce_twoshot_nvls allgather_nvls reducescatter_nvls allgather_bulk

# Exists where device code is or was a sample.
SAMPLED := $(BUILD)/kernels/sampled

COMPILE_BY_NVCC = $(NVCC) -std=c++17 -O3 $(if $(filter $(CODE_CHECKED),$*),,$(NVCCFLAGS)) -Ikernels $(GENCODE) $(COMPRESSED) -Xptxas -v -fatbin -o $@ $<
COMPILE_BY_NVRTC = $(PYTHON) scripts/build/nvrtc-fatbin $(NVRTC) $@ $< $(ARCHS) $(COMPRESSED_BY_NVRTC)
$(BUILD)/kernels/%.fatbin: kernels/%.cu $(KERNEL_CUH) $(wildcard kernels/*.h kernels/*.def) | $(TOOLKIT) $(NVRTC:=/cuda_nvrtc/include/nvrtc.h)
	$(call say,$(if $(NVRTC),NVRTC,NVCC),$<)
	$(Q)mkdir -p $(@D) && $(if $(NVRTC),,$(if $(filter $(A_SAMPLE),$(NVCCFLAGS)),touch $(SAMPLED) &&)) \
	    $(if $(NVRTC),$(COMPILE_BY_NVRTC),$(COMPILE_BY_NVCC)) 2> $@.log || { cat $@.log; exit 1; }

# What no driver takes but the emulated one.
$(BUILD)/gen/none.fatbin:
	$(Q)mkdir -p $(@D) && echo 'no device code: for the emulated box' > $@

$(BUILD)/gen/fatbin.S: $(FATBINS) scripts/build/embed-fatbin
	$(call say,GEN,$(@F))
	$(Q)mkdir -p $(@D) && scripts/build/embed-fatbin $(FATBINS) > $@

$(BUILD)/gen/fatbin.o: $(BUILD)/gen/fatbin.S
	$(Q)$(CC) -c -o $@ $<

# --- the library ---
# Neither it nor beeline-perf is to need a newer glibc than 2.28, whatever is here: scripts/build/check-glibc.
OLD_GLIBC := -include plugin/base/glibc.h
# -Bsymbolic-functions: the rows of abi.h are to hold Beeline's own entry points, whatever else exports those names.
$(BUILD)/%.o: %.c $(GEN)
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(OLD_GLIBC) -c -o $@ $<

$(BUILD)/gen/abi_stubs.o: $(BUILD)/gen/abi_stubs.c
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) $(OLD_GLIBC) -c -o $@ $<

# Before glibc 2.34 threads and dlopen were in libraries of their own, which are still there by name.
LIBC := -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--as-needed

# nodelete: its threads and what it has put in front of NCCL outlive a dlclose.
$(LIB): $(PLUGIN_OBJ) $(DISPATCH_OBJ) $(KERNEL_OBJ) plugin/nccl/export.map
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -Wl,-soname,libbeeline.so -Wl,--version-script,plugin/nccl/export.map -Wl,--no-undefined -Wl,-z,relro -Wl,-z,nodelete \
	    -Wl,-Bsymbolic-functions -Wl,--as-needed -o $@ $(PLUGIN_OBJ) $(DISPATCH_OBJ) $(KERNEL_OBJ) $(LIBC)

$(BUILD)/perf/%.o: scripts/perf/%.c $(GEN)
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(OLD_GLIBC) -DBL_PROGRAM -Iscripts/perf -c -o $@ $<

$(PERF): $(PERF_OBJ) $(BUILD)/plugin/base/glibc.o $(DISPATCH_OBJ) $(KERNEL_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ $(LIBC) -lm

# --- the command: a package of Python, and what starts it from this build ---
$(COMMAND): Makefile
	$(call say,GEN,$@)
	$(Q)mkdir -p $(@D) && printf '%s\n' '#!/bin/sh' 'here=$$(dirname "$$(readlink -f "$$0")")' \
	    'export BEELINE_LIBRARY="$${BEELINE_LIBRARY:-$$here/libbeeline.so}"' \
	    "exec $(PYTHON) \"\$$here/$$(realpath --relative-to=$(@D) scripts/beeline)\" \"\$$@\"" > $@ && chmod 755 $@

# --- the emulated box ---
EMU_CUDA_OBJ := $(patsubst test/emu/cuda/%.c,$(BUILD)/emu/cuda/%.o,$(wildcard test/emu/cuda/*.c))
EMU_NCCL_OBJ := $(patsubst test/emu/nccl/%.c,$(BUILD)/emu/nccl/%.o,$(wildcard test/emu/nccl/*.c))
EMU_KERNEL_OBJ := $(patsubst kernels/%.cu,$(BUILD)/emu/kernels/%.o,$(KERNEL_CU))

$(BUILD)/emu/%.o: test/emu/%.c $(GEN)
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -fvisibility=default -Itest/emu -c -o $@ $<

$(BUILD)/emu/libcuda.so.1: $(EMU_CUDA_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -Wl,-soname,libcuda.so.1 -Wl,--no-undefined -o $@ $^ -ldl -pthread -lrt

$(BUILD)/emu/libnvidia-ml.so.1: | $(BUILD)/emu/libcuda.so.1
	$(Q)ln -sf libcuda.so.1 $@

$(BUILD)/emu/libnccl.so.2: $(EMU_NCCL_OBJ) $(BUILD)/emu/libcuda.so.1
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -Wl,-soname,libnccl.so.2 -Wl,-rpath,'$$ORIGIN' -Wl,--no-undefined -o $@ $^ -lm -lrt -pthread

# The same, passing for an older NCCL that lacks functions and a newer one that has one more.
$(BUILD)/emu/old/libnccl.so.2: EMU_NCCL_HIDE = -Wl,--version-script,test/emu/nccl/variants/old.map
$(BUILD)/emu/old/libnccl.so.2 $(BUILD)/emu/new/libnccl.so.2: $(BUILD)/emu/%/libnccl.so.2: \
    $(EMU_NCCL_OBJ) $(BUILD)/emu/nccl/variants/%.o $(BUILD)/emu/libcuda.so.1 test/emu/nccl/variants/old.map
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) -shared -Wl,-soname,libnccl.so.2 -Wl,-rpath,'$$ORIGIN/..' -Wl,--no-undefined $(EMU_NCCL_HIDE) \
	    -o $@ $(filter-out %.map,$^) -lm -lrt -pthread

EMU_CFLAGS ?= -O1 -g1

# The very kernel sources, with test/emu/seam/core/primitives.cuh in place of kernels/core/primitives.cuh.
$(BUILD)/emu/kernels/%.o: kernels/%.cu | $(TOOLKIT)
	$(call say,EMU,$<)
	$(Q)mkdir -p $(@D) && $(CXX) -x c++ -std=c++17 -fPIC $(EMU_CFLAGS) $(CXXWARN) $(EMU_DEFINES) -Itest/emu/seam -Ikernels \
	    -isystem $(CUDA_HOME)/include -MMD -MP -c -o $@ $<

$(BUILD)/emu/libbeeline-kernels.so: $(EMU_KERNEL_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CXX) -shared -o $@ $^

# --- tests ---
-include test/test.mk

# What is to run on GPUs.
whole:
	$(Q)test ! -e $(SAMPLED) || { echo "$(BUILD) lacks most of the device code, as builds for tests do: take another BUILD, or rm -r $(BUILD)" >&2; exit 1; }

# On this box's GPUs, else on an emulated box.
demo: | whole
	+@BUILD='$(BUILD)' MAKE='$(MAKE)' scripts/demo

install: whole all
	$(Q)scripts/build/install $(BUILD) '$(DESTDIR)$(PREFIX)'

uninstall:
	$(Q)scripts/build/install --remove $(BUILD) '$(DESTDIR)$(PREFIX)'

wheel: whole all
	$(Q)$(PYTHON) scripts/build/make-wheel $(BUILD)

clean:
	rm -rf $(BUILD)

# A variable's value, for scripts: make -s print-CUDA_HOME
print-%:
	@echo $($*)

help:
	@sed -n 's/^#   make/make/p' Makefile test/test.mk

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.PHONY: all emu whole demo install uninstall wheel clean help
.DELETE_ON_ERROR:
