/* What the parts of the verifier share. Used inside this room only. */
#ifndef IR_VERIFY_PARTS_H
#define IR_VERIFY_PARTS_H

#include "ir/verify.h"

typedef struct verifier {
    const ir_program_t *program;
    const ir_extent_t *extents; /* NULL: what needs numbers is not checked */
    size_t operation;           /* number of the one being checked */
} verifier_t;

enum { VERIFY_SHOWN_BYTES = 240 };

/* Fails: names the rule, the operation being checked, its line, and the words. */
uncopy_status_t verify_fail(const verifier_t *verifier, const char *rule, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* A view as "x f32[2,3](3,1) +8". */
const char *verify_show(const verifier_t *verifier, uncopy_view_t view,
                        char shown[VERIFY_SHOWN_BYTES]);

/* verify_operation.c: one operation, number verifier->operation. */
UNCOPY_MUST_CHECK uncopy_status_t verify_operation(const verifier_t *verifier,
                                                   const ir_operation_t *operation);

/* verify_order.c: what hangs on the order of operations. */
UNCOPY_MUST_CHECK uncopy_status_t verify_order(const ir_program_t *program,
                                               const ir_extent_t *extents);

#endif
