# rules.mk - the self-test of the reference NCCL.
EMU_SELFTEST_OBJ := $(patsubst test/%.c,$(TEST)/%.o,$(wildcard test/emu/selftest/*.c))
TEST_PROGRAMS += $(TEST)/emu/nccl_selftest

$(TEST)/emu/nccl_selftest: $(EMU_SELFTEST_OBJ) $(TEST)/harness/rendezvous.o $(BUILD)/emu/libnccl.so.2 $(BUILD)/emu/libcuda.so.1 \
    | $(BUILD)/emu/old/libnccl.so.2 $(BUILD)/emu/new/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ -ldl -lm -pthread
