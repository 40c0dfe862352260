# rules.mk - programs for GPUs alone, with kernels of their own; included by test/test.mk.
GPU_KERNEL_PROGRAMS := $(TEST)/gpu/clusters $(TEST)/gpu/early $(TEST)/gpu/lines $(TEST)/gpu/nested
GPU_PROGRAMS += $(GPU_KERNEL_PROGRAMS)

lines: $(TEST)/gpu/lines
.PHONY: lines

$(TEST)/gpu/early $(TEST)/gpu/nested: GPU_LINK = -Xlinker --allow-shlib-undefined -Xlinker $(BUILD)/emu/libnccl.so.2
$(TEST)/gpu/early $(TEST)/gpu/nested: | $(BUILD)/emu/libnccl.so.2

$(GPU_KERNEL_PROGRAMS): $(TEST)/gpu/%: test/gpu/%.cu | $(TOOLKIT)
	$(call say,NVCC,$@)
	$(Q)mkdir -p $(@D) && $(NVCC) -std=c++17 -O2 -Ikernels $(GENCODE) -MD -MP -MF $@.d -o $@ $< $(GPU_LINK)
