/* Prepared tile programs, as the files of the tile machine share them.
 *
 * Places. A step names the memory it works on by place: a register (a part of the room on the
 * stack), the address that an operand has in the tile at hand, or a constant of the code. The
 * machine keeps one pointer a place.
 *
 * How the loop is walked (mode)
 *   TILE_MODE_TILES    no dim is reduced: tiles of rows by columns of the two inner dims
 *   TILE_MODE_ROWS     one index of the kept dims at a time; tiles lie along the reduced dims. A
 *                      row's values are single elements
 *   TILE_MODE_COLUMNS  `lanes` indices of one kept dim at a time; a tile is some steps along the
 *                      reduced dims by the lanes. A row's values are vectors of lanes
 *
 * Phases. Each reduction ends a phase for what depends on it: phase p first runs its row steps,
 * then its element steps tile by tile, then closes its reductions. An element's value that several
 * phases need is kept in its register where the whole row fits the room, else made again. */
#ifndef CPU_TILE_CODE_H
#define CPU_TILE_CODE_H

#include "cpu/table.h"
#include "cpu/tile.h"

enum {
    TILE_ROOM_BYTES = 96 * 1024,
    TILE_MAX_PLACES = 640,
    TILE_MAX_ENTRIES = TILE_MAX_OPERANDS + SPAN_MAX_RANK, /* operands, and loop indices as such */
    TILE_MAX_PHASES = 16,
    TILE_MAX_REDUCTIONS = 16,
    TILE_SPLIT_TILES = 64, /* tiles of a unit that is part of a row */
    TILE_MAX_LANES = 128,
    TILE_ALIGNMENT = 64,
};

typedef enum tile_mode {
    TILE_MODE_TILES,
    TILE_MODE_ROWS,
    TILE_MODE_COLUMNS,
} tile_mode_t;

typedef enum tile_step_code {
    STEP_LOAD,       /* entry's elements to place `to` */
    STEP_STORE,      /* place from[0] to entry's elements */
    STEP_ROW,        /* a row of pointwise.def */
    STEP_TAKE,       /* register to register by a load function */
    STEP_GIVE,       /* register to register by a store function */
    STEP_FILL,       /* `to` becomes copies of the first element of from[0] */
    STEP_REPEAT,     /* `to` becomes copies of from[0]'s lanes, one a row of the tile */
    STEP_INDEX,      /* `to` becomes the loop index of the entry */
    STEP_GATHER,     /* as LOAD, from places that indices pick */
    STEP_SCATTER,    /* as STORE, to places that indices pick */
    STEP_ACCUMULATE, /* from[0] into reduction number `reduction` */
    STEP_CHECK,      /* entry's indices lie in range */
} tile_step_code_t;

typedef struct tile_step {
    uint8_t code;
    uint8_t kind;          /* of the register */
    uint8_t element_bytes; /* of the register */
    bool is_added;         /* SCATTER adds */
    uint16_t to, from[3];
    uint16_t entry;
    uint16_t reduction;
    uint16_t indices[TILE_MAX_INDICES]; /* places of GATHER, SCATTER, CHECK */
    bool index_is_i32[TILE_MAX_INDICES];
    bool is_same_in_row; /* the indices do not differ along a tile's columns */
    union {
        row_loop_t row;
        load_t load;
        store_t store;
    } run;
    load_t load_back; /* of a SCATTER that adds */
    number_t scalars[2];
} tile_step_t;

typedef struct tile_steps {
    tile_step_t *steps;
    size_t count, capacity;
} tile_steps_t;

typedef enum tile_place_kind {
    PLACE_REGISTER,
    PLACE_ENTRY,
    PLACE_CONSTANT,
} tile_place_kind_t;

typedef struct tile_place {
    tile_place_kind_t kind;
    uint32_t offset;  /* in the room, or among the constants */
    uint32_t advance; /* bytes from tile to tile of one row; of registers that hold a whole row */
    uint16_t entry;
} tile_place_t;

/* An operand, or a loop index (is_index), with its strides in the walked loop. */
typedef struct tile_entry {
    uint16_t slot;
    uncopy_dtype_t dtype;
    bool is_index;
    const tile_operand_t *operand;       /* NULL for a loop index */
    int64_t kept_strides[SPAN_MAX_RANK]; /* of the outer kept dims, and the inner ones last */
    int64_t reduced_strides[SPAN_MAX_RANK];
} tile_entry_t;

typedef struct tile_reduction_code {
    tile_reduction_t reduction;
    fold_t fold;
    kind_t kind;
    uint16_t phase;
    uint16_t to;      /* place of the result: lanes elements */
    uint32_t offset;  /* of its accumulators in the room */
    uint32_t partial; /* of its part of a split unit's record */
} tile_reduction_code_t;

/* The steps of one way to use registers: safe is right for operands in place, direct writes some
 * results straight to their operand before all reads are done. */
typedef struct tile_variant {
    tile_steps_t setup;                     /* once a range of units */
    tile_steps_t rows[TILE_MAX_PHASES + 1]; /* once a row, before the phase; the last after all */
    tile_steps_t elements[TILE_MAX_PHASES]; /* once a tile */
    tile_place_t *places;
    size_t num_places, places_capacity;
    uint16_t *entry_places, *moving_places; /* those whose pointer changes with the tile */
    size_t num_entry_places, num_moving_places, entry_capacity, moving_capacity;
    tile_reduction_code_t reductions[TILE_MAX_REDUCTIONS];
    size_t num_reductions;
    size_t partial_bytes; /* of a split unit's record */
    size_t room_bytes;
} tile_variant_t;

struct tile_kernel {
    const tile_program_t *program;
    const table_t *table;
    tile_mode_t mode;
    bool is_empty; /* there is nothing to run */
    int32_t kept_rank, reduced_rank;
    int64_t kept_sizes[SPAN_MAX_RANK], reduced_sizes[SPAN_MAX_RANK];
    int64_t num_reduced; /* elements along the reduced dims */
    tile_entry_t entries[TILE_MAX_ENTRIES];
    size_t num_entries;
    /* TILES: a whole tile's shape. COLUMNS: steps and lanes of a whole tile. ROWS: 1 by 512. */
    int64_t tile_rows, tile_columns;
    int64_t capacity; /* elements of a register */
    size_t num_phases;
    int64_t num_splits; /* units of one row or block of lanes */
    int64_t num_units;
    int64_t num_tiles;  /* rows or blocks of lanes, times splits; as num_units, but for scatters */
    int64_t num_levels; /* of a reduction's tree */
    const char *constants;
    tile_variant_t safe, direct;
    bool has_direct;
    int64_t cost_ns;
    const tile_kernel_t *check; /* what tile_check runs */
};

/* ---- tile_shape.c ---- */

/* Chooses mode and walk from program and num_phases. is_needed tells which instructions count,
 * most_lanes how many lanes COLUMNS may take. */
void tile_shape(tile_kernel_t *code, const bool *is_needed, int64_t most_lanes);

/* Number of the entry of an operand, or of a loop index along dim. */
uint16_t tile_entry_of_operand(const tile_kernel_t *code, uint16_t operand);
uint16_t tile_entry_of_index(const tile_kernel_t *code, int32_t dim);

/* ---- tile_machine.c ---- */

/* What a run keeps: one pointer a place, one offset an entry, the tile at hand. */
typedef struct tile_machine {
    const tile_kernel_t *code;
    const tile_variant_t *variant;
    char *at[TILE_MAX_PLACES];
    char *data[TILE_MAX_ENTRIES];          /* address that an entry's offsets count from */
    int64_t row_offset[TILE_MAX_ENTRIES];  /* at the start of the row, or the block of lanes */
    int64_t tile_offset[TILE_MAX_ENTRIES]; /* at the tile's first element */
    const int64_t *offset;                 /* the one of the two that holds for the steps run */
    char *room;
    int64_t lanes;                /* of a row's values */
    int64_t rows, columns, count; /* of the tile at hand */
    int64_t start;                /* its first element, counted along the reduced dims */
    bool is_row_step;             /* the steps run are a row's: columns are its lanes */
    tile_failure_t *failure;      /* of CHECK; set where has_failed is */
    bool has_failed;
} tile_machine_t;

void tile_machine_init(tile_machine_t *machine, const tile_kernel_t *code,
                       const tile_variant_t *variant, char *const *data, char *room);

/* Runs steps on the tile that rows, columns, start and tile_offset describe. */
void tile_machine_run(tile_machine_t *machine, const tile_steps_t *steps);
/* Runs steps on a row's values. */
void tile_machine_run_row(tile_machine_t *machine, const tile_steps_t *steps);
/* Moves the pointers of places to the tile at hand. */
void tile_machine_move(tile_machine_t *machine);

/* ---- tile_run.c ---- */

size_t tile_workspace_bytes(const tile_kernel_t *code);

/* ---- tile_reduce.c ---- */

/* Bytes of a reduction's accumulators in the room, and of its part of a split unit's record. */
size_t tile_reduction_bytes(const tile_kernel_t *code, const tile_reduction_code_t *reduction);
size_t tile_partial_bytes(const tile_kernel_t *code);
fold_t tile_fold(tile_reduction_t reduction);
/* The kind in which values held in kind are reduced. */
kind_t tile_fold_kind(kind_t kind);

void tile_reductions_open(tile_machine_t *machine, size_t phase);
void tile_accumulate(tile_machine_t *machine, const tile_step_t *step);
/* Ends a tile of TILE_ELEMENTS steps (COLUMNS mode: some tiles of the walk make one). */
void tile_reductions_end_tile(tile_machine_t *machine, size_t phase);
/* To the reductions' places. */
void tile_reductions_close(tile_machine_t *machine, size_t phase);
/* Of a split unit: to its record, and from all records of a row to the reductions' places. */
void tile_reductions_save(tile_machine_t *machine, char *record);
void tile_reductions_join(tile_machine_t *machine, const char *records, int64_t num_records);

#endif
