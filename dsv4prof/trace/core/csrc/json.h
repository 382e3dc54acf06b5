/* JSON's tokens (RFC 8259, strict UTF-8) in a text that may end anywhere. No byte at or behind `end` is read. */
#ifndef DSV4_JSON_H
#define DSV4_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

typedef enum { DONE, MORE, BROKEN, NO_MEMORY } status;
enum { ESCAPED = 1, LONE_SURROGATE = 2 };

static inline const uint8_t *blanks(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p <= ' ' && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

/* The next byte that ends a string, escapes, is no ASCII or must not stand in a string; or `end`. */
static inline const uint8_t *special(const uint8_t *p, const uint8_t *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), space = _mm_set1_epi8(' ');
    while (end - p >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        /* Signed: bytes from 0x80 are below a blank as well. */
        __m128i hit = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash)),
                                   _mm_cmplt_epi8(v, space));
        unsigned mask = (unsigned)_mm_movemask_epi8(hit);
        if (mask) return p + __builtin_ctz(mask);
        p += 16;
    }
#else
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    while (end - p >= 8) {
        uint64_t v, quote, slash, hit;
        memcpy(&v, p, 8);
        quote = v ^ (ones * '"');
        slash = v ^ (ones * '\\');
        /* The lowest hit is exact: a borrow only runs upwards. */
        hit = (v | ((v - ones * ' ') & ~v) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & high;
        if (hit) return p + __builtin_ctzll(hit) / 8;
        p += 8;
    }
#endif
    while (p < end && *p != '"' && *p != '\\' && *p >= ' ' && *p < 0x80) p++;
    return p;
}

static inline int hex(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four hex digits at p. */
static inline status code_unit(const uint8_t *p, const uint8_t *end, unsigned *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        if (p + i == end) return MORE;
        int digit = hex(p[i]);
        if (digit < 0) return BROKEN;
        *unit = *unit << 4 | (unsigned)digit;
    }
    return DONE;
}

/* An escape; *at is at its backslash. */
static inline status escape(const uint8_t **at, const uint8_t *end, unsigned *notes)
{
    const uint8_t *p = *at + 1;
    unsigned unit, second;
    *notes |= ESCAPED;
    if (p == end) return MORE;
    switch (*p++) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        *at = p;
        return DONE;
    case 'u':
        break;
    default:
        return BROKEN;
    }
    status s = code_unit(p, end, &unit);
    if (s) return s;
    p += 4;
    if (unit >= 0xD800 && unit < 0xE000) {
        if (unit < 0xDC00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u' && code_unit(p + 2, end, &second) == DONE
            && second >= 0xDC00 && second < 0xE000)
            p += 6;
        else
            *notes |= LONE_SURROGATE;
    }
    *at = p;
    return DONE;
}

/* A character that is no ASCII. */
static inline status utf8(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *p = *at;
    uint8_t lead = *p++, low = 0x80, high = 0xBF;
    int left;
    if (lead >= 0xC2 && lead <= 0xDF) left = 1;
    else if (lead >= 0xE0 && lead <= 0xEF) left = 2;
    else if (lead >= 0xF0 && lead <= 0xF4) left = 3;
    else return BROKEN;
    /* Overlong forms, surrogates and what lies beyond Unicode show in the second byte. */
    if (lead == 0xE0) low = 0xA0;
    else if (lead == 0xED) high = 0x9F;
    else if (lead == 0xF0) low = 0x90;
    else if (lead == 0xF4) high = 0x8F;
    for (; left; left--, low = 0x80, high = 0xBF) {
        if (p == end) return MORE;
        if (*p < low || *p > high) return BROKEN;
        p++;
    }
    *at = p;
    return DONE;
}

/* A string; *at is behind its opening quote, and then behind the closing one. */
static inline status string(const uint8_t **at, const uint8_t *end, unsigned *notes)
{
    const uint8_t *p = *at;
    for (;;) {
        status s;
        p = special(p, end);
        if (p == end) return MORE;
        if (*p == '"') {
            *at = p + 1;
            return DONE;
        }
        if (*p == '\\') s = escape(&p, end, notes);
        else if (*p >= 0x80) s = utf8(&p, end);
        else return BROKEN;
        if (s) return s;
    }
}

static inline int is_digit(uint8_t c) { return (uint8_t)(c - '0') < 10; }

/* A number, and whether it is written as an integer. One that touches the end may go on. */
static inline status number(const uint8_t **at, const uint8_t *end, int *integer)
{
    const uint8_t *p = *at;
    *integer = 1;
    if (*p == '-' && ++p == end) return MORE;
    if (!is_digit(*p)) return BROKEN;
    if (*p == '0') p++;
    else
        while (p < end && is_digit(*p)) p++;
    if (p < end && *p == '.') {
        *integer = 0;
        if (++p == end) return MORE;
        if (!is_digit(*p)) return BROKEN;
        while (p < end && is_digit(*p)) p++;
    }
    if (p < end && (*p | 0x20) == 'e') {
        *integer = 0;
        if (++p == end) return MORE;
        if ((*p == '+' || *p == '-') && ++p == end) return MORE;
        if (!is_digit(*p)) return BROKEN;
        while (p < end && is_digit(*p)) p++;
    }
    if (p == end) return MORE;
    if (is_digit(*p) || *p == '.' || *p == '-' || *p == '+' || (*p | 0x20) == 'e') return BROKEN;
    *at = p;
    return DONE;
}

static inline status literal(const uint8_t **at, const uint8_t *end, const char *word, size_t length)
{
    size_t here = (size_t)(end - *at);
    if (memcmp(*at, word, here < length ? here : length)) return BROKEN;
    if (here < length) return MORE;
    *at += length;
    return DONE;
}

#endif
