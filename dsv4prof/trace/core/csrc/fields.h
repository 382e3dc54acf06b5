/* What the members of an event may be, and what their text means. */
#ifndef DSV4_FIELDS_H
#define DSV4_FIELDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "json.h"

#define MAX_US INT64_C(4611686018427387) /* 2**62 // 1000 */

/* Kinds of a value, as bits. */
enum { ABSENT = 0, STRING = 1, INTEGER = 2, DECIMAL = 4, NOTHING = 8, LOGICAL = 16, OBJECT = 32, LIST = 64 };
enum { PH, NAME, CAT, PID, TID, TS, DUR, ID, SCOPE, BP, ARGS, FIELDS };

typedef struct {
    const uint8_t *at; /* a string without its quotes */
    uint32_t length;
    uint8_t kind;
} value;

/* What each member may be; anything else needs the general reader. */
static const uint8_t ALLOWED[FIELDS] = {
    [PH] = STRING, [NAME] = STRING, [CAT] = STRING, [PID] = INTEGER | STRING, [TID] = INTEGER | STRING,
    [TS] = INTEGER | DECIMAL | NOTHING, [DUR] = INTEGER | DECIMAL | NOTHING, [ID] = INTEGER | STRING | NOTHING,
    [SCOPE] = STRING, [BP] = STRING | NOTHING, [ARGS] = OBJECT | NOTHING,
};

/* Which member a key names; FIELDS for one that means nothing. */
static inline int field(const uint8_t *key, size_t length)
{
    switch (length) {
    case 1:
        return key[0] == 's' ? SCOPE : FIELDS;
    case 2:
        switch (key[0] << 8 | key[1]) {
        case 'p' << 8 | 'h': return PH;
        case 't' << 8 | 's': return TS;
        case 'i' << 8 | 'd': return ID;
        case 'b' << 8 | 'p': return BP;
        }
        return FIELDS;
    case 3:
        switch (key[0] << 16 | key[1] << 8 | key[2]) {
        case 'c' << 16 | 'a' << 8 | 't': return CAT;
        case 'p' << 16 | 'i' << 8 | 'd': return PID;
        case 't' << 16 | 'i' << 8 | 'd': return TID;
        case 'd' << 16 | 'u' << 8 | 'r': return DUR;
        }
        return FIELDS;
    case 4:
        if (!memcmp(key, "name", 4)) return NAME;
        return memcmp(key, "args", 4) ? FIELDS : ARGS;
    }
    return FIELDS;
}

/* Exact ns of a number in us; -1 when it is negative, too large, has an exponent or parts of a ns. */
static inline int64_t nanoseconds(const value *v)
{
    const uint8_t *p = v->at, *end = p + v->length;
    int64_t us = 0, part = 0, weight = 100;
    if (!(v->kind & (INTEGER | DECIMAL))) return -1;
    for (; p < end && is_digit(*p); p++) {
        us = us * 10 + (*p - '0');
        if (us > MAX_US) return -1;
    }
    if (p == v->at) return -1;
    if (p < end && *p == '.')
        for (p++; p < end && is_digit(*p); p++, weight /= 10) {
            if (!weight && *p != '0') return -1;
            part += weight * (*p - '0');
        }
    if (p != end || (us == MAX_US && part)) return -1;
    return us * 1000 + part;
}

/* An integer of 64 bits; false when it is wider. */
static inline int integer(const value *v, int64_t *out)
{
    const uint8_t *p = v->at, *end = p + v->length;
    int minus = *p == '-';
    uint64_t sum = 0, most = (UINT64_C(1) << 63) - !minus;
    for (p += minus; p < end; p++) {
        unsigned digit = *p - '0';
        if (sum > (most - digit) / 10) return 0;
        sum = sum * 10 + digit;
    }
    *out = (int64_t)(minus ? 0 - sum : sum);
    return 1;
}

#endif
