# rules.mk - what runs on GPUs alone, has kernels of its own and is linked to NCCL by name; included by test/test.mk.
#   make gpu-programs ARCHS=90 BUILD=build-gpu
GPU_PROGRAMS := $(TEST)/gpu/early

gpu-programs: $(GPU_PROGRAMS)
.PHONY: gpu-programs

$(GPU_PROGRAMS): $(TEST)/gpu/%: test/gpu/%.cu | $(BUILD)/emu/libnccl.so.2
	$(call say,NVCC,$@)
	$(Q)mkdir -p $(@D) && $(NVCC) -std=c++17 -O2 -Ikernels $(GENCODE) -MD -MP -MF $@.d -o $@ $< \
	    -Xlinker --allow-shlib-undefined -Xlinker $(BUILD)/emu/libnccl.so.2
