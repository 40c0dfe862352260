# rules.mk - the programs that NCCL runs, linked to it by name; included by test/test.mk.
SOAK_OBJ := $(patsubst %,$(TEST)/programs/%.o,soak soak_draw soak_parent)
PROGRAM_OBJ := $(filter-out $(SOAK_OBJ),$(patsubst test/%.c,$(TEST)/%.o,$(wildcard test/programs/*.c)))
PROGRAMS := $(TEST)/programs/programs $(TEST)/programs/soak
TEST_PROGRAMS += $(PROGRAMS)
GPU_PROGRAMS += $(PROGRAMS)

$(TEST)/programs/programs: $(PROGRAM_OBJ)
$(TEST)/programs/soak: $(SOAK_OBJ)
$(PROGRAMS): $(TEST_HARNESS_OBJ) | $(BUILD)/emu/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ -Wl,--allow-shlib-undefined $(BUILD)/emu/libnccl.so.2 -ldl -lm -pthread
