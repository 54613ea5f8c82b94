/* Conversions of one number between element types, the bits of which the kernels promise.
 *
 * Rounding is to nearest, ties to even. A NaN stays a NaN; its payload and sign are not kept by f16
 * and bf16. Floats outside an integer type's range convert as PyTorch's do on x86: to i8, i16, u16
 * and i32 through a 32-bit integer, to u8, u32 and i64 through a 64-bit one, each of which is its
 * minimum when out of range; u64 takes 2^63 and above too.
 *
 * All code is free of branches that a vectoriser cannot turn into selects, and of undefined
 * behaviour. */
#ifndef CPU_NUMBER_H
#define CPU_NUMBER_H

#include <stdint.h>
#include <string.h>

static inline uint32_t number_bits(float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float number_from_bits(uint32_t bits)
{
    float value = 0;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float number_from_bf16(uint16_t half)
{
    return number_from_bits((uint32_t)half << 16);
}

static inline uint16_t number_to_bf16(float value)
{
    uint32_t bits = number_bits(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

/* Normal numbers: the exponent is moved up by 224 and scaled back by 2^-112, which also carries
 * infinity and NaN. Subnormal ones: the mantissa is put below an exponent of 0.5, which is then
 * subtracted. */
static inline float number_from_f16(uint16_t half)
{
    uint32_t word = (uint32_t)half << 16;
    uint32_t sign = word & 0x80000000u;
    uint32_t twice = word + word;
    uint32_t normal = number_bits(number_from_bits((twice >> 4) + (0xe0u << 23)) * 0x1.0p-112f);
    uint32_t subnormal = number_bits(number_from_bits((twice >> 17) | (126u << 23)) - 0.5f);
    return number_from_bits(sign | (twice < (1u << 27) ? subnormal : normal));
}

/* The hardware's rounding at the wanted bit: a power of two, chosen by the exponent, is added so
 * that the last bit kept is the sum's last. Scaling up and down first turns what is too large into
 * infinity. */
static inline uint16_t number_to_f16(float value)
{
    uint32_t word = number_bits(value);
    uint32_t sign = word & 0x80000000u;
    uint32_t twice = word + word;
    float scaled = number_from_bits(word & 0x7fffffffu) * 0x1.0p+112f * 0x1.0p-110f;
    uint32_t exponent = twice & 0xff000000u;
    exponent = exponent < 0x71000000u ? 0x71000000u : exponent;
    uint32_t sum = number_bits(number_from_bits((exponent >> 1) + 0x07800000u) + scaled);
    uint32_t magnitude = ((sum >> 13) & 0x7c00u) + (sum & 0x0fffu);
    return (uint16_t)((sign >> 16) | (twice > 0xff000000u ? 0x7e00u : magnitude));
}

static inline int32_t number_to_i32(double value)
{
    return value > -2147483649.0 && value < 2147483648.0 ? (int32_t)value : INT32_MIN;
}

static inline int64_t number_to_i64(double value)
{
    return value >= -0x1.0p63 && value < 0x1.0p63 ? (int64_t)value : INT64_MIN;
}

static inline uint64_t number_to_u64(double value)
{
    return value >= 0x1.0p63 ? (uint64_t)number_to_i64(value - 0x1.0p63) ^ (UINT64_C(1) << 63)
                             : (uint64_t)number_to_i64(value);
}

#endif
