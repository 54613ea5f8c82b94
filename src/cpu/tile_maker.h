/* What makes prepared code, shared by tile_prepare.c (order and phases) and tile_steps.c (one
 * instruction). */
#ifndef CPU_TILE_MAKER_H
#define CPU_TILE_MAKER_H

#include "cpu/tile_code.h"

enum { MAKER_MAX_REGISTERS = 64 };
#define NO_PLACE ((uint16_t)UINT16_MAX)

typedef struct maker_value {
    kind_t kind;  /* of its register */
    size_t level; /* the first phase that can make it */
    bool is_row;  /* a row's value, or a number */
    bool is_kept; /* several phases need it, and its register keeps it */
    bool is_made; /* in this phase or, if kept, an earlier one */
    bool is_only_stored;
    /* a write stores what was read: where it may be in place, from a register */
    bool is_stored_as_read;
    bool varies_in_row;    /* along a tile's columns */
    uint16_t place;        /* of an element's register, a row's lanes, a number's element */
    uint16_t full;         /* of a row's value as a tile's register */
    uint16_t number;       /* of a row's value in the compute type */
    uint16_t direct_entry; /* the operand in whose memory it is made */
    tile_value_t last_use; /* in this phase */
    size_t reduction;      /* number of a REDUCE's reduction */
} maker_value_t;

typedef struct maker_register {
    uint16_t place;
    size_t bytes;
    bool is_used;
} maker_register_t;

typedef struct maker {
    const tile_kernel_t *code;
    arena_t *arena;
    tile_variant_t *variant;
    bool is_direct;
    const bool *is_needed;
    maker_value_t values[TILE_MAX_CODES];
    uint16_t entry_places[TILE_MAX_ENTRIES];
    maker_register_t registers[MAKER_MAX_REGISTERS];
    size_t num_registers;
    size_t room_used;
    size_t tiles_kept; /* tiles of a row that kept registers hold */
    size_t phase;      /* being made */
    uncopy_status_t status;
} maker_t;

void maker_fail(maker_t *maker, uncopy_status_t status);
void maker_add_step(maker_t *maker, tile_steps_t *list, const tile_step_t *step);
/* A register of the room that is never given back. */
uint16_t maker_take_room(maker_t *maker, size_t bytes);

/* Adds the steps of one instruction; its sources are made. */
void maker_emit(maker_t *maker, tile_steps_t *list, tile_value_t value);
void maker_emit_write(maker_t *maker, tile_steps_t *list, tile_value_t value);
/* A number's element and compute number lie at these offsets of the constants. */
void maker_place_number(maker_t *maker, tile_value_t value, size_t element_offset,
                        size_t number_offset);

/* Where a value of an element, or a number, lies as a vector. */
uint16_t maker_vector(maker_t *maker, tile_value_t value);

/* Whether a write's value can be made in the operand's own memory. */
bool maker_is_direct_write(const maker_t *maker, tile_value_t write);
/* Whether a read needs no step: its operand lies as a register would. */
bool maker_is_in_memory(const maker_t *maker, tile_value_t value);

#endif
