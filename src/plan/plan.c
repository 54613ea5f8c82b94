#include "plan/plan.h"

void plan_release(plan_t *plan)
{
    arena_release(&plan->arena);
    *plan = (plan_t){.arena = plan->arena};
}
