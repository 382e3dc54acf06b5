/* The compiled core's flat interface: plain numbers and pointers, called by core/native.py.
 *
 * Nothing here knows Python. A call touches only what it is given, so calls on different objects may run at once.
 * Change DSV4_ABI here and in native.py with every change of a struct or a call.
 */
#ifndef DSV4_CORE_H
#define DSV4_CORE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "rows are little-endian"
#endif

#define DSV4_ABI 1
#define DSV4_PUBLIC __attribute__((visibility("default")))

enum { STOP_MORE, STOP_CLOSED, STOP_ODD, STOP_BROKEN, STOP_NO_MEMORY };
enum { HAS_ID = 1, ID_IS_WORD = 2, BINDS_ENCLOSING = 4 };

/* columns.EVENT */
typedef struct {
    int64_t ts, dur, id;
    int32_t name, cat, track;
    uint32_t args_at, args_len;
    uint8_t ph, scope, flags, pad;
} row;

_Static_assert(sizeof(row) == 48, "a row is what columns.EVENT says");

/* Byte strings by number, in order of first use. Entry i is bytes[ends[i - 1]:ends[i]]. */
typedef struct {
    uint8_t *bytes;
    uint64_t *ends;
    uint64_t *hashes;
    uint32_t *slots; /* number + 1, 0 for none */
    uint64_t count, capacity, room, mask;
} table;

int table_init(table *t);
void table_free(table *t);
/* The string's number, or -1 without memory. */
int64_t table_place(table *t, const uint8_t *bytes, size_t length);

/* Whether a number is this string's. */
static inline int table_is(const table *t, int64_t place, const uint8_t *bytes, size_t length)
{
    if (place < 0) return 0;
    uint64_t begin = place ? t->ends[place - 1] : 0;
    return t->ends[place] - begin == length && !memcmp(t->bytes + begin, bytes, length);
}

/* What Python reads after a scan; the pointers hold until the next one. */
typedef struct {
    const row *rows;
    uint64_t row_count, consumed, end;
    const uint8_t *words, *tracks;
    const uint64_t *word_ends, *track_ends;
    uint64_t word_count, track_count;
    int32_t stop;
} scan_result;

typedef struct scanner scanner;

#endif
