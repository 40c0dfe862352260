# rules.mk - the programs of test/meeting; included by test/test.mk.
TEST_PROGRAMS += $(TEST)/meeting/elsewhere.so

$(TEST)/meeting/elsewhere.so: test/meeting/elsewhere.c $(GEN)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -fvisibility=default -shared -o $@ $<
