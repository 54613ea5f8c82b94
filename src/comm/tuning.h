/* The sizes at which the engine changes its way, each with its measurement. Bytes unless named
 * otherwise. Measured with bench/comm.c on two cores (Zen 4, 1 MiB L2 a core, 32 MiB L3), 2 ranks
 * apart unless said; p50 in microseconds. */
#ifndef COMM_TUNING_H
#define COMM_TUNING_H

enum {
    /* Payload beside the header instead of a pull from a window: saves the closing step. Beside /
     * window: all_gather 4 KiB 1.18 / 1.30, 16 KiB 1.88 / 1.52; broadcast 4 KiB 0.92 / 1.02;
     * all_to_all 4 KiB 0.95 / 1.09, 16 KiB 1.90 / 1.67. 4 ranks on 2 cores, all_gather: 8 KiB 8.2 /
     * 11.4, 32 KiB 22 / 27, 128 KiB 74 / 68. */
    TUNING_BESIDE_HEADER = 4 << 10,
    TUNING_BESIDE_HEADER_CROWDED = 64 << 10,

    /* all_reduce where every rank reduces everything in one step, count of bytes times (size - 1).
     * f32, parts / everything: 16 KiB 3.7 / 3.2, 32 KiB 6.3 / 5.0, 64 KiB 6.9 / 8.6; bf16: 8 KiB
     * 3.1 / 3.2, 16 KiB 4.5 / 6.0. 4 ranks on 2 cores, f32: 8 KiB 10.9 / 8.5, 16 KiB 11.6 /
     * 13.0. */
    TUNING_REDUCE_ALL = 32 << 10,
    TUNING_REDUCE_ALL_CONVERTED = 16 << 10, /* dtypes that are widened to be reduced */

    /* One of the two staging areas. all_gather of 8 MiB: 32 KiB 1319, 128 KiB 1273, 512 KiB 1293, 2
     * MiB 1232; 4 ranks on 2 cores: 9314, 9133, 8223, 8205. */
    TUNING_CHUNK = 512 << 10,

    /* Stores past the caches, by bytes that land in the call. all_gather alone, cached / past: 8
     * MiB 605 / 638, 32 MiB 4755 / 3230; with a gemv over the result right after: 32 MiB 2560 /
     * 4571, 64 MiB 7289 / 8084, 128 MiB 19223 / 16744; hence twice as many where the result is read
     * soon. The same decides how payloads are filled where all ranks send at once, cached / past:
     * all_gather 32 MiB 3096 / 2435, 128 MiB 12669 / 10290; all_to_all 32 MiB 4431 / 3696; but
     * broadcast, whose takers read while the root fills, 32 MiB 1415 / 2037. */
    TUNING_STREAMING = 32 << 20,

    /* process_vm_readv instead of staging, bytes of one source, where no rank shares a core.
     * all_gather, read / staged: 256 KiB 11.8 / 13.5, 1 MiB 41.7 / 54.8, 4 MiB 162 / 235, 8 MiB 404
     * / 456. 4 ranks on 2 cores: 256 KiB 119 / 60, 1 MiB 440 / 221, hence never there. */
    TUNING_READ_FROM = 32 << 10,
    TUNING_READ_TO = 8 << 20,
    /* where one rank sends or takes, so that staging keeps both cores busy. broadcast: 256 KiB 10.1
     * / 12.5, 1 MiB 38.2 / 38.4, 4 MiB 158 / 138, 8 MiB 325 / 251. */
    TUNING_READ_TO_ROOTED = 1 << 20,
    /* of one system call: bounds how long a dead peer's memory is held */
    TUNING_READ_CALL = 1 << 20,

    /* Nanoseconds. A wake-up from a sleep costs 22000 to 34000 in a virtual machine whose core
     * idles; a yield to a foreign busy process its slice, 4000000. */
    TUNING_SPIN_NS = 50000,     /* the peer runs on another core now */
    TUNING_SPIN_SHORT_NS = 500, /* it may not */
    TUNING_YIELD_NS = 50000,
    TUNING_YIELD_LONG_NS = 300000, /* a yield that took longer went to a stranger */
    TUNING_YIELD_REST = 16,        /* waits without yields after that; doubles up to */
    TUNING_YIELD_REST_MOST = 1024,
    /* one sleep; deaths, aborts and deadlines are looked at in between */
    TUNING_SLEEP_NS = 10000000,
};

#endif
