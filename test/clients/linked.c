/* linked.c - a client that names NCCL when it is linked. As a library it is what PyTorch is to a Python process: linked
 * with NCCL, and itself opened RTLD_LOCAL. */
#include "client.h"

int client_main(void);

int client_main(void) {
#define CLIENT_MEMBER(function) .function = function,
    static const struct client_nccl nccl = {CLIENT_FUNCTIONS(CLIENT_MEMBER)};
    return client_run(&nccl);
}

#ifndef CLIENT_LIBRARY
int main(void) {
    return client_main();
}
#endif
