# rules.mk - the programs of test/clients; included by test/test.mk.
CLIENTS := $(TEST)/clients
CLIENT_LINK = $(CC) -o $@ $(filter %.o %.so.2,$^) -Wl,--allow-shlib-undefined
CLIENT_PROGRAMS := $(addprefix $(CLIENTS)/,linked linked-rpath liblinked.so libinside.so opened dlsym probe racing forked absent \
    counting.so ahead.so shim.so recording/libnccl.so.2 recording/calls)
TEST_PROGRAMS += $(CLIENT_PROGRAMS)

clients: $(CLIENT_PROGRAMS)
.PHONY: clients

$(CLIENTS)/linked: $(CLIENTS)/linked.o $(CLIENTS)/client.o $(BUILD)/emu/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CLIENT_LINK) -ldl

# Finds its NCCL by a run path, as a Python package's library does.
$(CLIENTS)/linked-rpath: $(CLIENTS)/linked.o $(CLIENTS)/client.o $(BUILD)/emu/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CLIENT_LINK) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../../emu' -ldl

$(CLIENTS)/liblinked.so: test/clients/linked.c $(CLIENTS)/client.o $(BUILD)/emu/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -fvisibility=default -DCLIENT_LIBRARY -shared -o $@ $(filter %.c %.o %.so.2,$^) \
	    -Wl,--allow-shlib-undefined,-rpath,'$$ORIGIN/../../emu' -ldl

# One that has NCCL inside, as some builds of libtorch_cuda do.
$(CLIENTS)/libinside.so: test/clients/linked.c $(CLIENTS)/client.o $(EMU_NCCL_OBJ) $(BUILD)/emu/libcuda.so.1
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -fvisibility=default -DCLIENT_LIBRARY -shared -o $@ $(filter %.c %.o %.so.1,$^) -ldl -lm -lrt

$(CLIENTS)/forked: $(CLIENTS)/forked.o $(BUILD)/emu/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CLIENT_LINK)

$(CLIENTS)/opened: $(CLIENTS)/opened.o $(CLIENTS)/client.o
	$(call say,LINK,$@)
	$(Q)$(CLIENT_LINK) -ldl

$(CLIENTS)/dlsym $(CLIENTS)/probe $(CLIENTS)/racing $(CLIENTS)/absent: %: %.o
	$(call say,LINK,$@)
	$(Q)$(CLIENT_LINK) -ldl -pthread

$(CLIENTS)/counting.so $(CLIENTS)/ahead.so $(CLIENTS)/shim.so: $(CLIENTS)/%.so: test/clients/%.c $(GEN)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -fvisibility=default -shared -o $@ $< -ldl

# An NCCL that notes what it is called with, and a program that calls all of it.
$(CLIENTS)/recording/recording_nccl.c $(CLIENTS)/recording/recording_calls.c &: test/clients/make_recording.py \
    plugin/real/abi.py plugin/real/nccl_later.h plugin/real/abi_own.txt $(NCCL_H)
	$(call say,GEN,recording_nccl.c recording_calls.c)
	$(Q)mkdir -p $(@D) && $(PYTHON) $< $(NCCL_H) plugin/real/nccl_later.h plugin/real/abi_own.txt $(@D)

RECORDING_CFLAGS = $(ALL_CFLAGS) -fvisibility=default -Wno-deprecated-declarations -Wno-missing-field-initializers
$(CLIENTS)/recording/libnccl.so.2: $(CLIENTS)/recording/recording_nccl.c $(GEN)
	$(call say,LINK,$@)
	$(Q)$(CC) $(RECORDING_CFLAGS) -shared -Wl,-soname,libnccl.so.2 -o $@ $<

$(CLIENTS)/recording/calls: $(CLIENTS)/recording/recording_calls.c $(CLIENTS)/recording/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CC) $(RECORDING_CFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN'
