# beeline-perf against a library that does wrong; and the dispatcher's reader of files under the sanitizers.
TEST_PERF_FAULTY := $(TEST)/perf/libfaulty.so
TEST_DISPATCH_ASAN := $(TEST)/perf/dispatch_tuning_asan
TEST_PROGRAMS += $(TEST_PERF_FAULTY) $(TEST_DISPATCH_ASAN)

$(TEST_PERF_FAULTY): $(TEST)/perf/faulty.o | $(BUILD)/emu/libnccl.so.2
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -o $@ $^ -Wl,--allow-shlib-undefined $(BUILD)/emu/libnccl.so.2 $(BUILD)/emu/libcuda.so.1

$(TEST_DISPATCH_ASAN): test/unit/dispatch_tuning_test.c test/unit/dispatch_test.h $(wildcard dispatch/*.[ch]) kernels/kernels.c kernels/mixed.c $(GEN)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) -std=gnu11 $(WARN) -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	    $(INCLUDES) -o $@ $(filter %.c,$^)
