# rules.mk - programs for GPUs alone, with kernels of their own and linked to NCCL by name; included by test/test.mk.
GPU_KERNEL_PROGRAMS := $(TEST)/gpu/early
GPU_PROGRAMS += $(GPU_KERNEL_PROGRAMS)

$(GPU_KERNEL_PROGRAMS): $(TEST)/gpu/%: test/gpu/%.cu | $(BUILD)/emu/libnccl.so.2
	$(call say,NVCC,$@)
	$(Q)mkdir -p $(@D) && $(NVCC) -std=c++17 -O2 -Ikernels $(GENCODE) -MD -MP -MF $@.d -o $@ $< \
	    -Xlinker --allow-shlib-undefined -Xlinker $(BUILD)/emu/libnccl.so.2
