/* The reduction loops for any machine. */
#include <string.h>

#include "comm/reduce.h"

#define REDUCE_TABLE reduce_portable
#define REDUCE_TEXT "portable"
#include "comm/reduce_body.inc"
