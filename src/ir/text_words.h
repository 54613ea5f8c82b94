/* Words that the parser and the printer of the text language share. */
#ifndef IR_TEXT_WORDS_H
#define IR_TEXT_WORDS_H

#include "uncopy/program.h"

typedef struct words_effect {
    const char *word;
    unsigned bit;
} words_effect_t;

static const words_effect_t words_effects[] = {
    {"audited", UNCOPY_EFFECT_AUDITED},
    {"raises", UNCOPY_EFFECT_RAISES},
    {"random", UNCOPY_EFFECT_RANDOM},
    {"layout", UNCOPY_EFFECT_LAYOUT},
    {"out", UNCOPY_EFFECT_OUT},
    {"threads", UNCOPY_EFFECT_THREADS},
    {"outlayout", UNCOPY_EFFECT_OUT_LAYOUT},
};

enum { WORDS_NUM_EFFECTS = sizeof(words_effects) / sizeof(words_effects[0]) };

#endif
