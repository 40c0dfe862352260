/* dispatch_tuning_test.c - tuning files with every kind of error, and random ones. */
#include "dispatch_test.h"

static void test_bad_files(void) {
    static const struct {
        const char *text, *word, *accepted;
    } bad[] = {
        {"all_reduce 4 1K nccl", "1: 'all_reduce'", "gpu line must come first"},
        {"nonsense", "1: 'nonsense'", "a line starts with gpu"},
        {"\n\n  \"gpu\" any", "3: 'gpu'", "a line starts with gpu"},
        {"gpu", "1: ", "the line ends"},
        {"gpu every", "'every'", "in quotes"},
        {"gpu NVIDIA H200 arch 90", "'NVIDIA'", "in quotes"},
        {"gpu any arch 90", "'arch'", "link, nvlinks, nccl, and at the end multicast"},
        {"gpu \"\" arch 90", "''", "1 to 63"},
        {"gpu \"x", "'\"x'", "ends with a quote"},
        {"gpu \"x\"", "1: ", "arch should"},
        {"gpu \"x\" sm 90", "'sm'", "arch"},
        {"gpu \"x\" arch", "1: ", "90 for sm_90"},
        {"gpu \"x\" arch sm_90", "'sm_90'", "90 for sm_90"},
        {"gpu \"x\" arch 9", "'9'", "90 for sm_90"},
        {"gpu \"x\" arch 90 91", "'91'", "link, nvlinks, nccl, and at the end multicast"},
        {"gpu any multicast link nvlink", "'multicast'", "at the end"},
        {"gpu any link", "1: ", "nvswitch or nvlink"},
        {"gpu any link bus", "'bus'", "nvswitch or nvlink"},
        {"gpu any nvlinks 0", "'0'", "above 0"},
        {"gpu any nvlinks", "1: ", "above 0"},
        {"gpu any nccl ring", "'ring'", "nvls or plain"},
        {"gpu any nccl", "1: ", "nvls or plain"},
        {"gpu \"0123456789012345678901234567890123456789012345678901234567890123\" arch 90", "'01234", "1 to 63"},
        {"gpu any\nall_reduce", "2: ", "number of ranks"},
        {"gpu any\nall_reduce 4", "2: ", "most bytes"},
        {"gpu any\nall_reduce 4 1K", "2: ", "algorithm"},
        {"gpu any\nall_reduce 1 1K nccl", "'1'", "2 to 16"},
        {"gpu any\nall_reduce 17 1K nccl", "'17'", "2 to 16"},
        {"gpu any\nall_reduce four 1K nccl", "'four'", "2 to 16"},
        {"gpu any\nall_reduce -4 1K nccl", "'-4'", "2 to 16"},
        {"gpu any\nall_reduce 4 0 nccl", "'0'", "above 0"},
        {"gpu any\nall_reduce 4 K nccl", "'K'", "K, M or G"},
        {"gpu any\nall_reduce 4 1k nccl", "'1k'", "K, M or G"},
        {"gpu any\nall_reduce 4 1KB nccl", "'1KB'", "K, M or G"},
        {"gpu any\nall_reduce 4 1.5K nccl", "'1.5K'", "K, M or G"},
        {"gpu any\nall_reduce 4 18446744073709551616 nccl", "'18446744073709551616'", "max"},
        {"gpu any\nall_reduce 4 17179869184G nccl", "'17179869184G'", "max"},
        {"gpu any\nall_reduce 4 \"max\" nccl", "'max'", "max"},
        {"gpu any\nall_reduce 4 1K ring", "'ring'", "nccl, oneshot_ll, oneshot_ll128, twoshot_ll128"},
        {"gpu any\nall_gather 4 1K twoshot_ll128", "'twoshot_ll128'",
         "nccl, allgather_ll128, allgather_bulk, allgather_ce"},
        {"gpu any\nall_gather 4 1K reducescatter_ll128", "'reducescatter_ll128'",
         "nccl, allgather_ll128, allgather_bulk, allgather_ce"},
        {"gpu any\nreduce_scatter 4 1K allgather_ll128", "'allgather_ll128'", "nccl, reducescatter_ll128"},
        {"gpu any\nall_reduce 4 1K allgather_ll128_batch", "'allgather_ll128_batch'", "nccl, oneshot_ll"},
        {"gpu any\nall_reduce 4 1K nccl 5", "'5'", "blocks=N, threads=N, spread=lines"},
        {"gpu any\nall_reduce 4 1K nccl block=5", "'block=5'", "blocks=N, threads=N, spread=lines"},
        {"gpu any\nall_reduce 4 1K nccl blocks=", "'blocks='", "1 to 1024"},
        {"gpu any\nall_reduce 4 1K nccl blocks=0", "'blocks=0'", "1 to 1024"},
        {"gpu any\nall_reduce 4 1K nccl blocks=1025", "'blocks=1025'", "1 to 1024"},
        {"gpu any\nall_reduce 4 1K nccl threads=31", "'threads=31'", "multiple of 32"},
        {"gpu any\nall_reduce 4 1K nccl threads=48", "'threads=48'", "multiple of 32"},
        {"gpu any\nall_reduce 4 1K nccl threads=544", "'threads=544'", "32 to 256"},
        {"gpu any\nall_reduce 4 1K oneshot_ll128 spread=", "'spread='", "lines or warps"},
        {"gpu any\nall_reduce 4 1K oneshot_ll128 spread=groups", "'spread=groups'", "lines or warps"},
        {"gpu any\nall_reduce 4 1K oneshot_ll128 spread=warpswarps", "'spread=warpswarps'", "lines or warps"},
        {"gpu any\nall_reduce 4 1K oneshot_ll spread=warps", "'spread=warps'", "does not spread"},
        {"gpu any\nall_reduce 4 1K nccl spread=warps", "'spread=warps'", "does not spread"},
        {"gpu any\nall_reduce 4 1K oneshot_ll128:warps", "'oneshot_ll128:warps'", "nccl, oneshot_ll"},
        {"gpu any\nall_reduce 4 1K oneshot_ll128_warps", "'oneshot_ll128_warps'",
         "it is oneshot_ll128 spread=warps now"},
        {"gpu any\nall_gather 4 1K oneshot_ll128_warps", "'oneshot_ll128_warps'", "nccl, allgather_ll128"},
        {"gpu any\nall_reduce 4 1K nccl a b c d e f g h i", "'i'", "too many words"},
        {"gpu any\nall_reduce 4 2K nccl\nall_reduce 4 2K nccl", "3: '2K'", "must rise"},
        {"gpu any\nall_reduce 4 max nccl\nall_reduce 4 2K nccl", "3: '2K'", "must rise"},
        {"gpu any\nall_reduce 4 1 nccl\nall_reduce 4 2 nccl\nall_reduce 4 3 nccl\nall_reduce 4 4 nccl\nall_reduce 4 5 "
         "nccl\nall_reduce 4 6 nccl\nall_reduce 4 7 nccl\nall_reduce 4 8 nccl\nall_reduce 4 9 nccl\nall_reduce 4 10 "
         "nccl\nall_reduce 4 11 nccl\nall_reduce 4 12 nccl\nall_reduce 4 13 nccl",
         "14: 'all_reduce'", "at most 12"},
        {"\x01\x7f\xff", "1: '\?\?\?'", "a line starts with gpu"},
        {"gpu bad\nall_reduce 4 1K nonsense\nall_reduce 99 1K nccl", "1: 'bad'", "in quotes"}, /* says it once */
    };
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_table table, plain;

    build(&plain, &facts, NULL);
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bl_settings settings = settings_of(bad[i].text);
        struct messages m = {0};
        bl_table_build(&table, &facts, &settings, keep, &m);
        CHECK(m.count == 2 && !strcmp(m.text[1], "my.tune is not used, because of its mistakes"),
              "%s: %d messages: %s %s", bad[i].text, m.count, m.text[0], m.text[1]);
        CHECK(strstr(m.text[0], "my.tune:") == m.text[0] && strstr(m.text[0], bad[i].word) &&
                  strstr(m.text[0], bad[i].accepted),
              "%s: got '%s', want %s and %s", bad[i].text, m.text[0], bad[i].word, bad[i].accepted);
        CHECK(bl_table_valid(&table), "%s", bad[i].text);
    }

    /* Nothing good in the file: the built-in rows hold.  Many bad lines: a few messages and a count. */
    char *text = malloc(1000 * 2 + 1);
    for (int i = 0; i < 1000; i++) memcpy(text + 2 * i, "x\n", 2);
    text[2000] = 0;
    struct bl_settings settings = settings_of(text);
    struct messages m = {0};
    bl_table_build(&table, &facts, &settings, keep, &m);
    CHECK(m.count == 18 && strstr(m.text[16], "984 lines more") && strstr(m.text[17], "not used"), "%d messages, %s",
          m.count, m.text[16]);
    CHECK(!memcmp(&table, &plain, sizeof table), "a file without a good row changes nothing");
    free(text);
}

/* Random files, of words that nearly make sense or of any bytes at all: the table is always valid. */
static void test_fuzz(void) {
    static const char *const words[] = {"gpu",
                                        "any",
                                        "\"NVIDIA H200\"",
                                        "link",
                                        "nvswitch",
                                        "nvlinks",
                                        "multicast",
                                        "arch",
                                        "90",
                                        "all_reduce",
                                        "all_gather",
                                        "4",
                                        "2",
                                        "16",
                                        "1K",
                                        "64K",
                                        "max",
                                        "nccl",
                                        "\n",
                                        "\n",
                                        "\n",
                                        "blocks=4",
                                        "\"",
                                        "threads=64",
                                        "spread=warps",
                                        "#",
                                        "\r\n",
                                        "0",
                                        "oneshot_ll128",
                                        "-1",
                                        "9G",
                                        "=",
                                        "blocks=",
                                        "\t",
                                        "twoshot_ll128",
                                        "oneshot_ll",
                                        "99999999999999999999",
                                        "7M",
                                        "reduce_scatter",
                                        "allgather_ll128",
                                        "allgather_ce",
                                        "reducescatter_ll128"};
    srand(7);
    for (int round = 0; round < 4000; round++) {
        size_t used = 0, size = 4096;
        char *text = malloc(size);
        int n = rand() % 300;
        for (int i = 0; i < n && used + 64 < size; i++) {
            if (round % 2)
                text[used++] = rand() % 255 + 1;
            else
                used +=
                    sprintf(text + used, "%s%s", words[rand() % (sizeof words / sizeof *words)], rand() % 8 ? " " : "");
        }
        text[used++] = 0;
        char *exact = malloc(used); /* so that a sanitizer sees a read past the end */
        memcpy(exact, text, used);
        free(text);
        struct bl_facts facts = facts_of(rand() % 2 ? "NVIDIA H200" : "x", 80 + rand() % 2 * 10, 2 + rand() % 15);
        struct bl_settings settings = settings_of(exact);
        struct bl_table table;
        struct messages m = {0};
        bl_table_build(&table, &facts, &settings, keep, &m);
        CHECK(bl_table_valid(&table), "round %d", round);
        CHECK(m.count <= 18, "round %d: %d messages", round, m.count);
        for (int i = 0; i < 9; i++) select_for(&table, i % BL_COLLECTIVES, (uint64_t)rand() << rand() % 33);
        free(exact);
    }
}

int main(void) {
    test_bad_files();
    test_fuzz();
    return say_checks();
}
