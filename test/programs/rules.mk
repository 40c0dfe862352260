# rules.mk - the programs that NCCL runs, linked to it by name; included by test/test.mk.
PROGRAM_OBJ := $(patsubst test/%.c,$(TEST)/%.o,$(filter-out %/soak.c,$(wildcard test/programs/*.c)))
PROGRAMS := $(TEST)/programs/programs
TEST_PROGRAMS += $(PROGRAMS)
GPU_PROGRAMS += $(PROGRAMS)

$(TEST)/programs/programs: $(PROGRAM_OBJ) $(TEST_HARNESS_OBJ) | $(BUILD)/emu/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ -Wl,--allow-shlib-undefined $(BUILD)/emu/libnccl.so.2 -ldl -lm -pthread
