/* The compiler's one entry: from a program and a call's arguments to a plan. */
#ifndef COMPILE_COMPILE_H
#define COMPILE_COMPILE_H

#include "ir/program.h"
#include "plan/plan.h"
#include "plan/target.h"

/* Plans program for arguments (NULL: for its assume lines). plan is initialised here, its arena on
 * allocator; it is released on error. Errors: see uncopy_plan_create. */
UNCOPY_MUST_CHECK uncopy_status_t compile_plan(const uncopy_allocator_t *allocator,
                                               const ir_program_t *program, const target_t *target,
                                               const uncopy_options_t *options,
                                               const uncopy_argument_t *arguments,
                                               size_t num_arguments, plan_t *plan);

#endif
