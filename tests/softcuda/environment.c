/* The environment sets what softcuda_configure() sets, before the first
 * call; what is not understood is said and left at its default. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
    size_t free_bytes = 0, total = 0;
    CUdeviceptr address = 0;
    char said[4096] = "";
    int count = 0, status;
    FILE *log = tmpfile();

    setenv("SOFTCUDA_DEVICES", "3", 1);
    setenv("SOFTCUDA_MEMORY", "1048576", 1);
    setenv("SOFTCUDA_FAIL", "cuStreamQuery:2:5", 1);
    setenv("SOFTCUDA_RACES", "maybe", 1);
    setenv("SOFTCUDA_UNWRITTEN", "0", 1);
    setenv("SOFTCUDA_DROP_WAIT", "", 1);
    setenv("SOFTCUDA_TRACE", "1", 1);
    setenv("SOFTCUDA_SEDE", "3", 1);
    setenv("SOFTCUDA_", "3", 1);
    setenv("SOFTCUDA_EVERYTHING_THAT_HAS_A_NAME_OF_MORE_THAN_48_LETTERS", "",
           1);
    if (log != NULL) {
        setvbuf(stderr, NULL, _IONBF, 0);
        dup2(fileno(log), STDERR_FILENO);
    }
    if (!controls_open(&status)) {
        return status;
    }
    if (log != NULL) {
        rewind(log);
        said[fread(said, 1, sizeof(said) - 1, log)] = '\0';
    }

    ok(strstr(said, "SOFTCUDA_RACES=maybe is not understood; give 0 or 1\n") !=
           NULL,
       "a value that is not understood is said, with those that are");
    ok(strstr(said, "SOFTCUDA_SEDE is no variable of the software device; did "
                    "you mean SOFTCUDA_SEED?\n") != NULL,
       "a mistyped name is said, with the nearest one");
    ok(strstr(said, "SOFTCUDA_ is no variable of the software device; there "
                    "are SOFTCUDA_SEED, ") != NULL,
       "one that is near none, with all there are");
    ok(strstr(said, "SOFTCUDA_EVERYTHING_THAT_HAS_A_NAME") != NULL,
       "a long one, too");
    ok(strstr(said, "SOFTCUDA_TRACE is") == NULL &&
           strstr(said, "SOFTCUDA_FAIL is") == NULL,
       "and nothing is said of the names that there are");
    ok(strstr(said, "softcuda: run") != NULL, "operations are traced");
    drv.cuDeviceGetCount(&count);
    is_int(count, 3, "devices come from the environment");
    drv.cuMemGetInfo(&free_bytes, &total);
    is_int(total, 1048576, "memory comes from the environment");
    is_int(drv.cuMemAlloc(&address, 2 << 20), 2, "and is all there is");
    drv.cuMemAlloc(&address, 64);
    launch_add(side, word(0), address);
    drv.cuMemFree(address);
    is_int(unwritten(), 0, "reads of new memory are let be");
    is_int(drv.cuStreamQuery(side), 0, "a failure waits for its turn");
    is_int(drv.cuStreamQuery(side), 5, "and comes from the environment");
    launch_store(side, word(0), 1);
    launch_store(other, word(0), 1);
    drv.cuCtxSynchronize();
    is_int(races(), 1, "races are on when their setting makes no sense");
    configure("SEED=0");
    if (log != NULL) {
        fclose(log);
    }
    contract_close();
    return done_testing();
}
