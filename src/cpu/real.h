/* Functions of one real number for pointwise.def: real_f32_NAME and real_f64_NAME.
 *
 * The f64 ones are libm's. The f32 exponentials and the logarithm are computed here in f64 and
 * rounded once, with no branch, so that loops over them vectorise; no operation is fused, so every
 * instruction set gives the same bits. Largest error over every 13th f32: 0.501 units in the
 * last place. The reduced polynomials are Taylor's: their remainders, below 1e-11, are far under
 * the rounding of f32. NaN passes through every clamp. */
#ifndef CPU_REAL_H
#define CPU_REAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline double real_from_bits(uint64_t bits)
{
    double value = 0;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint64_t real_bits(double value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* exp(x) to a relative error below 1e-11 for x in -120..120; outside, the value at the nearer end,
 * which is beyond what f32 can tell from infinity or zero. x = n ln 2 + r: adding 1.5 * 2^52 leaves
 * the integer n in the low bits of the sum. */
static inline double real_wide_exp(double x)
{
    const double magic = 0x1.8p52;
    x = x > 120 ? 120 : x;
    x = x < -120 ? -120 : x;
    double shifted = x * 0x1.71547652b82fep0 + magic;
    double r = x - (shifted - magic) * 0x1.62e42fefa39efp-1;
    double sum = 1.0 / 362880;
    sum = sum * r + 1.0 / 40320;
    sum = sum * r + 1.0 / 5040;
    sum = sum * r + 1.0 / 720;
    sum = sum * r + 1.0 / 120;
    sum = sum * r + 1.0 / 24;
    sum = sum * r + 1.0 / 6;
    sum = sum * r + 0.5;
    sum = sum * r + 1;
    sum = sum * r + 1;
    return sum * real_from_bits((real_bits(shifted) + 1023) << 52);
}

static inline float real_f32_exp(float x)
{
    return (float)real_wide_exp((double)x);
}

static inline float real_f32_sigmoid(float x)
{
    return (float)(1 / (1 + real_wide_exp(-(double)x)));
}

/* Near zero 1 - 2 / (exp(2x) + 1) cancels; there two terms of the series are enough. */
static inline float real_f32_tanh(float x)
{
    double wide = (double)x;
    double near = wide * (1 - wide * wide * (1.0 / 3));
    double far = 1 - 2 / (real_wide_exp(2 * wide) + 1);
    return (float)(fabs(wide) < 0x1p-8 ? near : far);
}

/* x = 2^e m with m in sqrt(1/2)..sqrt(2): moving the bits by those of sqrt(1/2) splits there. log m
 * = 2 atanh(s) with s = (m - 1) / (m + 1). The exponent becomes a number by being put under the
 * leading one of 2^52. */
static inline float real_f32_log(float x)
{
    const uint64_t root = UINT64_C(0x3fe6a09e667f3bcd);
    double wide = (double)x;
    uint64_t moved = real_bits(wide) - root + (UINT64_C(1023) << 52);
    double exponent = real_from_bits((moved >> 52) | UINT64_C(0x4330000000000000)) - 0x1p52 - 1023;
    double m = real_from_bits((moved & UINT64_C(0x000fffffffffffff)) + root);
    double s = (m - 1) / (m + 1), t = s * s;
    double sum = 1.0 / 13;
    sum = sum * t + 1.0 / 11;
    sum = sum * t + 1.0 / 9;
    sum = sum * t + 1.0 / 7;
    sum = sum * t + 1.0 / 5;
    sum = sum * t + 1.0 / 3;
    sum = sum * t + 1;
    double result = exponent * 0x1.62e42fefa39efp-1 + 2 * s * sum;
    result = wide == 0 ? -INFINITY : result;
    result = wide < INFINITY ? result : wide;
    return (float)(wide < 0 ? (double)NAN : result);
}

#define REAL_OF_LIBM(name)                         \
    static inline float real_f32_##name(float x)   \
    {                                              \
        return name##f(x);                         \
    }                                              \
    static inline double real_f64_##name(double x) \
    {                                              \
        return name(x);                            \
    }

REAL_OF_LIBM(fabs)
REAL_OF_LIBM(sqrt)
REAL_OF_LIBM(sin)
REAL_OF_LIBM(cos)
REAL_OF_LIBM(floor)
REAL_OF_LIBM(ceil)
REAL_OF_LIBM(trunc)

static inline double real_f64_exp(double x)
{
    return exp(x);
}

static inline double real_f64_log(double x)
{
    return log(x);
}

static inline double real_f64_tanh(double x)
{
    return tanh(x);
}

static inline double real_f64_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* x * y + z, rounded once. */
static inline float real_f32_fma(float x, float y, float z)
{
    return fmaf(x, y, z);
}

static inline double real_f64_fma(double x, double y, double z)
{
    return fma(x, y, z);
}

#endif
