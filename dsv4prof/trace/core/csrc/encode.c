/* Rows of a rank -> the canonical lines of a merged Chrome trace; core/plain_encode.py writes the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "core.h"

/* Byte strings that follow each other; string i is bytes[ends[i - 1]:ends[i]]. */
typedef struct {
    const uint8_t *bytes;
    const uint64_t *ends;
    uint64_t count;
} strings;

typedef struct {
    const uint8_t *text;
    const row *rows;
    const int64_t *ts, *dur, *ids;
    const int32_t *place;
    uint64_t text_length, row_count;
    strings words, places;
    const uint8_t *prefix;
    uint64_t prefix_length;
} encode_task;

typedef struct {
    uint8_t *bytes;
    uint64_t length, room;
} output;

enum { ENCODED, BAD_ROW, OUT_OF_MEMORY };

/* Over the fixed text, three numbers and the separator of the longest line. */
#define MOST_FIXED 192

static const char PAIRS[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354555657"
    "585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

static inline uint64_t begin_of(const strings *s, int64_t i) { return i ? s->ends[i - 1] : 0; }
static inline uint64_t length_of(const strings *s, int64_t i) { return s->ends[i] - begin_of(s, i); }
static inline int has(const strings *s, int64_t i) { return i >= 0 && (uint64_t)i < s->count; }

static inline uint8_t *put(uint8_t *out, const void *bytes, size_t length)
{
    memcpy(out, bytes, length);
    return out + length;
}

#define PUT(text) out = put(out, text, sizeof(text) - 1)

static inline uint8_t *put_string(uint8_t *out, const strings *s, int64_t i)
{
    return put(out, s->bytes + begin_of(s, i), length_of(s, i));
}

static inline uint8_t *put_unsigned(uint8_t *out, uint64_t v)
{
    char digits[20];
    int at = 20;
    for (; v >= 100; v /= 100) {
        at -= 2;
        memcpy(digits + at, PAIRS + 2 * (v % 100), 2);
    }
    if (v >= 10) {
        at -= 2;
        memcpy(digits + at, PAIRS + 2 * v, 2);
    } else
        digits[--at] = (char)('0' + v);
    return put(out, digits + at, (size_t)(20 - at));
}

static inline uint8_t *put_signed(uint8_t *out, int64_t v)
{
    if (v < 0) *out++ = '-';
    return put_unsigned(out, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

/* Decimal us, without decimals when whole. */
static inline uint8_t *put_time(uint8_t *out, int64_t ns)
{
    uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns, part = size % 1000;
    if (ns < 0) *out++ = '-';
    out = put_unsigned(out, size / 1000);
    if (part) {
        *out++ = '.';
        *out++ = (uint8_t)('0' + part / 100);
        out = put(out, PAIRS + 2 * (part % 100), 2);
    }
    return out;
}

/* Bytes that the lines need at most; false when a row names what does not exist. */
static int measure(const encode_task *t, uint64_t *most)
{
    uint64_t sum = 1;
    for (uint64_t i = 0; i < t->row_count; i++) {
        const row *r = t->rows + i;
        if (r->ph == 'M') continue;
        int worded = r->flags & ID_IS_WORD && (r->ph == 'b' || r->ph == 'n' || r->ph == 'e');
        if (!has(&t->words, r->name) || !has(&t->words, r->cat) || !has(&t->places, t->place[i])
            || (worded && !has(&t->words, r->id)) || (uint64_t)r->args_at + r->args_len > t->text_length)
            return 0;
        sum += MOST_FIXED + length_of(&t->words, r->name) + length_of(&t->words, r->cat)
            + length_of(&t->places, t->place[i]) + t->prefix_length + (worded ? length_of(&t->words, r->id) : 0)
            + r->args_len;
    }
    *most = sum;
    return 1;
}

static inline uint8_t *put_line(uint8_t *out, const encode_task *t, uint64_t i)
{
    const row *r = t->rows + i;
    int args = r->args_len != 0;
    switch (r->ph) {
    case 'X':
        PUT("{\"ph\":\"X\",\"cat\":");
        break;
    case 'i':
        PUT("{\"ph\":\"i\",\"s\":\"");
        *out++ = r->scope;
        PUT("\",\"cat\":");
        break;
    case 'C':
        PUT("{\"ph\":\"C\",\"name\":");
        break;
    case 's': case 't': case 'f':
        PUT("{\"ph\":\"");
        *out++ = r->ph;
        PUT("\",\"id\":");
        out = put_signed(out, t->ids[i]);
        PUT(",\"cat\":");
        args = 0;
        break;
    default:
        PUT("{\"ph\":\"");
        *out++ = r->ph;
        PUT("\",\"id\":\"");
        out = put(out, t->prefix, t->prefix_length);
        if (r->flags & ID_IS_WORD)
            out = put(out, t->words.bytes + begin_of(&t->words, r->id) + 1, length_of(&t->words, r->id) - 2);
        else
            out = put_signed(out, r->id);
        PUT("\",\"cat\":");
    }
    if (r->ph != 'C') {
        out = put_string(out, &t->words, r->cat);
        PUT(",\"name\":");
    }
    out = put_string(out, &t->words, r->name);
    *out++ = ',';
    out = put_string(out, &t->places, t->place[i]);
    PUT(",\"ts\":");
    out = put_time(out, t->ts[i]);
    if (r->ph == 'X') {
        PUT(",\"dur\":");
        out = put_time(out, t->dur[i]);
    }
    if (args) {
        PUT(",\"args\":");
        out = put(out, t->text + r->args_at, r->args_len);
    } else if (r->flags & BINDS_ENCLOSING && (r->ph == 's' || r->ph == 't' || r->ph == 'f'))
        PUT(",\"bp\":\"e\"");
    *out++ = '}';
    return out;
}

DSV4_PUBLIC output *dsv4_output_new(void) { return calloc(1, sizeof(output)); }

DSV4_PUBLIC void dsv4_output_free(output *o)
{
    if (!o) return;
    free(o->bytes);
    free(o);
}

/* The lines, joined by ",\n", in `o` until its next use. */
DSV4_PUBLIC int32_t dsv4_encode(output *o, const encode_task *t)
{
    uint64_t most;
    o->length = 0;
    if (!measure(t, &most)) return BAD_ROW;
    if (most > o->room) {
        free(o->bytes);
        o->bytes = malloc(most);
        o->room = o->bytes ? most : 0;
        if (!o->bytes) return OUT_OF_MEMORY;
    }
    uint8_t *out = o->bytes;
    for (uint64_t i = 0; i < t->row_count; i++) {
        if (t->rows[i].ph == 'M') continue;
        if (out != o->bytes) PUT(",\n");
        out = put_line(out, t, i);
    }
    o->length = (uint64_t)(out - o->bytes);
    return ENCODED;
}
