/* Uncopy: plans programs whose tensors share memory and are written in place, and runs them without
 * needless copies.
 *
 * Reading order: status.h, context.h, program.h, argument.h, host.h, plan.h, function.h, comm.h. A
 * complete program is in examples/c. */
#ifndef UNCOPY_UNCOPY_H
#define UNCOPY_UNCOPY_H

#include "uncopy/argument.h"
#include "uncopy/comm.h"
#include "uncopy/context.h"
#include "uncopy/dtype.h"
#include "uncopy/function.h"
#include "uncopy/host.h"
#include "uncopy/plan.h"
#include "uncopy/program.h"
#include "uncopy/status.h"
#include "uncopy/version.h"

#endif
