/* Interning: a byte string -> its number. Strings are short and few, lookups are many. */
#include <stdlib.h>
#include <string.h>

#include "core.h"

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ b) * 0x9E3779B97F4A7C15u;
    return a ^ (a >> 29);
}

static uint64_t hash(const uint8_t *p, size_t length)
{
    uint64_t h = length * 0xD6E8FEB86659FD93u, last = 0;
    for (; length >= 8; p += 8, length -= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = mix(h, v);
    }
    memcpy(&last, p, length);
    h = mix(h, last);
    return h;
}

/* Where a hash's search begins: by its high bits, which depend on every byte. */
static inline uint64_t slot_of(uint64_t h, uint64_t mask) { return h >> __builtin_clzll(mask); }

int table_init(table *t)
{
    memset(t, 0, sizeof *t);
    t->mask = 255;
    t->slots = calloc(t->mask + 1, sizeof *t->slots);
    return t->slots != NULL;
}

void table_free(table *t)
{
    free(t->bytes);
    free(t->ends);
    free(t->hashes);
    free(t->slots);
}

/* Room for one more entry of `length` bytes; everything is as before when there is no memory. */
static int grow(table *t, size_t length)
{
    uint64_t used = t->count ? t->ends[t->count - 1] : 0;
    if (t->count + 1 >= UINT32_MAX / 2) return 0;
    if (!t->bytes || used + length > t->room) {
        uint64_t room = (used + length) * 2 + 4096;
        uint8_t *bytes = realloc(t->bytes, room);
        if (!bytes) return 0;
        t->bytes = bytes;
        t->room = room;
    }
    if (t->count == t->capacity) {
        uint64_t capacity = t->capacity * 2 + 256;
        uint64_t *ends = realloc(t->ends, capacity * sizeof *ends);
        if (!ends) return 0;
        t->ends = ends;
        uint64_t *hashes = realloc(t->hashes, capacity * sizeof *hashes);
        if (!hashes) return 0;
        t->hashes = hashes;
        t->capacity = capacity;
    }
    if (2 * (t->count + 1) > t->mask) {
        uint64_t mask = t->mask * 2 + 1;
        uint32_t *slots = calloc(mask + 1, sizeof *slots);
        if (!slots) return 0;
        for (uint64_t i = 0; i < t->count; i++) {
            uint64_t at = slot_of(t->hashes[i], mask);
            while (slots[at]) at = (at + 1) & mask;
            slots[at] = (uint32_t)(i + 1);
        }
        free(t->slots);
        t->slots = slots;
        t->mask = mask;
    }
    return 1;
}

int64_t table_place(table *t, const uint8_t *bytes, size_t length)
{
    uint64_t h = hash(bytes, length), at = slot_of(h, t->mask);
    for (; t->slots[at]; at = (at + 1) & t->mask) {
        uint64_t i = t->slots[at] - 1;
        if (t->hashes[i] == h && table_is(t, (int64_t)i, bytes, length)) return (int64_t)i;
    }
    if (!grow(t, length)) return -1;
    for (at = slot_of(h, t->mask); t->slots[at];) at = (at + 1) & t->mask;
    uint64_t i = t->count++, begin = i ? t->ends[i - 1] : 0;
    if (length) memcpy(t->bytes + begin, bytes, length);
    t->ends[i] = begin + length;
    t->hashes[i] = h;
    t->slots[at] = (uint32_t)(i + 1);
    return (int64_t)i;
}
