/* Numbers of the text language: elements of constants and operands, to text and back without loss.
 * Pure functions; the process's locale does not matter. */
#ifndef IR_TEXT_NUMBER_H
#define IR_TEXT_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

/* Bytes that any formatted number fits in, NUL included. */
enum { NUMBER_TEXT_BYTES = 48 };

/* The value of a bool, integer or float element; other kinds give 0. I64 and U64 round. */
double number_decode(uncopy_dtype_t dtype, const void *element);
/* Stores value, rounded to nearest even, as an element of a float dtype. */
void number_encode(uncopy_dtype_t dtype, double value, void *element);

/* The shortest digits that read back as value. Never looks like an integer or a name: "0.5", "2.0",
 * "+inf", "-nan". */
void number_format(double value, char buffer[NUMBER_TEXT_BYTES]);
/* An element: digits where they read back exactly, else its raw bits as "0x7fc1". */
void number_format_element(uncopy_dtype_t dtype, const void *element,
                           char buffer[NUMBER_TEXT_BYTES]);

/* digits: what number_format writes without its sign. False where it is no number. */
bool number_parse(const char *digits, size_t length, bool is_negative, double *out_value);
/* Decimal digits alone. False where they are none or do not fit. */
bool number_parse_integer(const char *digits, size_t length, bool is_negative, int64_t *out_value);
/* What number_format_element writes. False where it is no element of dtype. */
bool number_parse_element(uncopy_dtype_t dtype, const char *digits, size_t length, bool is_negative,
                          void *out_element);

#endif
