# rules.mk - the programs of test/faults; included by test/test.mk.
FAULTS := $(TEST)/faults
TEST_PROGRAMS += $(FAULTS)/faults $(FAULTS)/sockets.so

$(FAULTS)/faults: $(patsubst %,$(FAULTS)/%.o,faults refused sums) $(TEST_HARNESS_OBJ) | $(BUILD)/emu/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ -Wl,--allow-shlib-undefined $(BUILD)/emu/libnccl.so.2 -ldl -lm -pthread

$(FAULTS)/sockets.so: test/faults/sockets.c $(GEN)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -fvisibility=default -shared -o $@ $<

# The library with planted faults in plugin/launch/copy.c.
FAULTS_COPY := $(FAULTS)/copy/libbeeline.so
TEST_PROGRAMS += $(FAULTS_COPY)

$(FAULTS_COPY): $(FAULTS)/copy.o $(filter-out $(BUILD)/plugin/launch/copy.o,$(PLUGIN_OBJ)) $(DISPATCH_OBJ) $(KERNEL_OBJ) plugin/nccl/export.map
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) -shared -Wl,-soname,libbeeline.so -Wl,--version-script,plugin/nccl/export.map -Wl,--no-undefined \
	    -Wl,-Bsymbolic-functions -Wl,--as-needed -o $@ $(filter %.o,$^) -ldl -pthread
