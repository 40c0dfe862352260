# rules.mk - the tests of the emulated box itself: the reference NCCL and the driver.
EMU_SELFTEST_OBJ := $(patsubst test/%.c,$(TEST)/%.o,$(wildcard test/emu/selftest/*.c))
TEST_PROGRAMS += $(TEST)/emu/nccl_selftest

$(TEST)/emu/nccl_selftest: $(EMU_SELFTEST_OBJ) $(TEST)/harness/rendezvous.o $(BUILD)/emu/libnccl.so.2 $(BUILD)/emu/libcuda.so.1 \
    | $(BUILD)/emu/old/libnccl.so.2 $(BUILD)/emu/new/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ -ldl -lm -pthread

EMU_CUDATEST_OBJ := $(patsubst test/%.c,$(TEST)/%.o,$(wildcard test/emu/cudatest/*.c))
TEST_PROGRAMS += $(TEST)/emu/cudatest/cudatest

EMU_CUDATEST_KERNELS := $(patsubst test/%.cu,$(TEST)/%.o,$(wildcard test/emu/cudatest/*.cu))

$(TEST)/emu/cudatest/%.o: test/emu/cudatest/%.cu | $(TOOLKIT)
	$(call say,EMU,$<)
	$(Q)mkdir -p $(@D) && $(CXX) -x c++ -std=c++17 -fPIC -O1 -g $(CXXWARN) -Itest/emu/seam -Ikernels \
	    -isystem $(CUDA_HOME)/include -MMD -MP -c -o $@ $<

$(TEST)/emu/cudatest/libcudatest-kernels.so: $(EMU_CUDATEST_KERNELS)
	$(Q)$(CXX) -shared -o $@ $^

$(TEST)/emu/cudatest/cudatest: $(EMU_CUDATEST_OBJ) $(BUILD)/emu/libcuda.so.1 | $(TEST)/emu/cudatest/libcudatest-kernels.so
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ -pthread
