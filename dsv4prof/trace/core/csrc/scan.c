/* Elements of `traceEvents` -> rows. core/plain.py does the same and says what is regular; tests compare the two. */
#include <stdlib.h>

#include "core.h"
#include "fields.h"
#include "json.h"

#define MAX_DEPTH 100

struct scanner {
    table words, tracks;
    row *rows;
    uint64_t row_count, row_room;
    uint64_t *nesting; /* a bit a level: 1 for an object */
    size_t levels;
    uint8_t *key; /* a track's name in `tracks`, when words are in it */
    size_t key_room;
    int64_t last_pid, last_tid; /* the last track of two integers */
    int32_t last_track;
    int64_t last_cat; /* the last event's, -1 before any */
    int odd; /* the element needs the general reader */
    const uint8_t *text;
    scan_result result;
};

static int push(scanner *s, size_t depth, int object)
{
    size_t word = depth / 64;
    if (word >= s->levels) {
        size_t levels = s->levels * 2 + 4;
        uint64_t *nesting = realloc(s->nesting, levels * sizeof *nesting);
        if (!nesting) return 0;
        s->nesting = nesting;
        s->levels = levels;
    }
    uint64_t bit = UINT64_C(1) << (depth % 64);
    if (object) s->nesting[word] |= bit;
    else s->nesting[word] &= ~bit;
    return 1;
}

static inline status quoted(scanner *s, const uint8_t **at, const uint8_t *end)
{
    unsigned notes = 0;
    status found = string(at, end, &notes);
    s->odd |= notes & LONE_SURROGATE;
    return found;
}

static inline status scalar(scanner *s, const uint8_t **at, const uint8_t *end, uint8_t *kind)
{
    int integer;
    status found;
    switch (**at) {
    case '"':
        *kind = STRING;
        ++*at;
        return quoted(s, at, end);
    case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
        found = number(at, end, &integer);
        *kind = integer ? INTEGER : DECIMAL;
        return found;
    case 't':
        *kind = LOGICAL;
        return literal(at, end, "true", 4);
    case 'f':
        *kind = LOGICAL;
        return literal(at, end, "false", 5);
    case 'n':
        *kind = NOTHING;
        return literal(at, end, "null", 4);
    default:
        return BROKEN;
    }
}

#define BLANKS() do { p = blanks(p, end); if (p == end) return MORE; } while (0)

/* An object or a list, however deep; *at is at its bracket. */
static status container(scanner *s, const uint8_t **at, const uint8_t *end)
{
    const uint8_t *p = *at;
    size_t depth = 0;
    int object;
    uint8_t kind;
    status found;
open:
    object = *p++ == '{';
    if (!push(s, depth, object)) return NO_MEMORY;
    if (++depth > MAX_DEPTH) s->odd = 1;
    BLANKS();
    if (*p == (object ? '}' : ']')) goto close;
member:
    if (object) {
        if (*p++ != '"') return BROKEN;
        if ((found = quoted(s, &p, end))) return found;
        BLANKS();
        if (*p++ != ':') return BROKEN;
        BLANKS();
    }
    if (*p == '{' || *p == '[') goto open;
    if ((found = scalar(s, &p, end, &kind))) return found;
behind:
    BLANKS();
    if (*p == ',') {
        p++;
        BLANKS();
        goto member;
    }
    if (*p != (object ? '}' : ']')) return BROKEN;
close:
    p++;
    if (--depth) {
        object = s->nesting[(depth - 1) / 64] >> ((depth - 1) % 64) & 1;
        goto behind;
    }
    *at = p;
    return DONE;
}

/* The members of an object; *at is behind its bracket. */
static status members(scanner *s, const uint8_t **at, const uint8_t *end, value *fields)
{
    const uint8_t *p = *at;
    status found;
    BLANKS();
    if (*p == '}') {
        *at = p + 1;
        return DONE;
    }
    for (;;) {
        unsigned notes = 0;
        if (*p++ != '"') return BROKEN;
        const uint8_t *key = p;
        if ((found = string(&p, end, &notes))) return found;
        /* Escapes in a key may spell one that means something. */
        if (notes) s->odd = 1;
        int which = field(key, (size_t)(p - 1 - key));
        BLANKS();
        if (*p++ != ':') return BROKEN;
        BLANKS();
        value v = {p, 0, 0};
        if (*p == '{' || *p == '[') {
            v.kind = *p == '{' ? OBJECT : LIST;
            if ((found = container(s, &p, end))) return found;
        } else if ((found = scalar(s, &p, end, &v.kind)))
            return found;
        if (which != FIELDS) {
            int bare = v.kind == STRING;
            v.at += bare;
            v.length = (uint32_t)(p - bare - v.at);
            if (!(v.kind & ALLOWED[which]) || (which == BP && v.kind == STRING && !(v.length == 1 && *v.at == 'e')))
                s->odd = 1;
            fields[which] = v;
        }
        BLANKS();
        if (*p == '}') break;
        if (*p++ != ',') return BROKEN;
        BLANKS();
    }
    *at = p + 1;
    return DONE;
}

/* A track's key: for process and thread a kind byte and eight bytes of an integer or a length, then their words. */
static int64_t track(scanner *s, const value *pid, const value *tid)
{
    const value *parts[2] = {pid, tid};
    int64_t numbers[2] = {0, 0};
    size_t size = 18;
    for (int i = 0; i < 2; i++) {
        if (parts[i]->kind == INTEGER && !integer(parts[i], &numbers[i])) {
            s->odd = 1;
            return 0;
        }
        if (parts[i]->kind == STRING) size += parts[i]->length;
    }
    int bare = pid->kind != STRING && tid->kind != STRING;
    if (bare && s->last_track >= 0 && numbers[0] == s->last_pid && numbers[1] == s->last_tid) return s->last_track;
    if (size > s->key_room) {
        uint8_t *key = realloc(s->key, size * 2);
        if (!key) return -1;
        s->key = key;
        s->key_room = size * 2;
    }
    uint8_t *out = s->key + 18;
    for (int i = 0; i < 2; i++) {
        int word = parts[i]->kind == STRING;
        int64_t head = word ? (int64_t)parts[i]->length : numbers[i];
        s->key[9 * i] = (uint8_t)word;
        memcpy(s->key + 9 * i + 1, &head, 8);
        if (word && parts[i]->length) {
            memcpy(out, parts[i]->at, parts[i]->length);
            out += parts[i]->length;
        }
    }
    int64_t place = table_place(&s->tracks, s->key, size);
    if (bare) {
        s->last_pid = numbers[0];
        s->last_tid = numbers[1];
        s->last_track = (int32_t)place;
    }
    return place;
}

/* A regular element's row at the end of `rows`; sets `odd` otherwise. False without memory. */
static int take(scanner *s, const value *f, int canonical)
{
    row r = {0};
    if (f[PH].length != 1) goto odd;
    r.ph = *f[PH].at == 'I' ? 'i' : *f[PH].at;
    switch (r.ph) {
    case 'M':
        break;
    case 'C':
        if (!canonical) goto odd;
        break;
    case 'X':
        if ((r.dur = nanoseconds(&f[DUR])) < 0) goto odd;
        break;
    case 'i':
        r.scope = 't';
        if (f[SCOPE].kind) {
            if (f[SCOPE].length != 1) goto odd;
            r.scope = *f[SCOPE].at;
            if (r.scope != 't' && r.scope != 'p' && r.scope != 'g') goto odd;
        }
        break;
    case 's': case 't': case 'f': case 'b': case 'n': case 'e':
        r.flags = HAS_ID;
        if (f[ID].kind == STRING) r.flags |= ID_IS_WORD;
        else if (f[ID].kind != INTEGER || !integer(&f[ID], &r.id)) goto odd;
        if (f[BP].kind == STRING && (r.ph == 's' || r.ph == 't' || r.ph == 'f')) r.flags |= BINDS_ENCLOSING;
        break;
    default:
        goto odd;
    }
    if (r.ph != 'M' && (r.ts = nanoseconds(&f[TS])) < 0) goto odd;
    if (r.ph == 'X' && !r.ts && !r.dur && !canonical) goto odd;
    int64_t place = track(s, &f[PID], &f[TID]);
    if (s->odd) return 1;
    int64_t name = table_place(&s->words, f[NAME].at, f[NAME].length);
    int64_t cat = s->last_cat;
    if (!table_is(&s->words, cat, f[CAT].at, f[CAT].length))
        s->last_cat = cat = table_place(&s->words, f[CAT].at, f[CAT].length);
    if (r.flags & ID_IS_WORD) r.id = table_place(&s->words, f[ID].at, f[ID].length);
    if (place < 0 || name < 0 || cat < 0 || ((r.flags & ID_IS_WORD) && r.id < 0)) return 0;
    r.track = (int32_t)place;
    r.name = (int32_t)name;
    r.cat = (int32_t)cat;
    if (f[ARGS].kind == OBJECT) {
        r.args_at = (uint32_t)(f[ARGS].at - s->text);
        r.args_len = f[ARGS].length;
    }
    if (s->row_count == s->row_room) {
        uint64_t room = s->row_room * 2 + 1024;
        row *rows = realloc(s->rows, room * sizeof *rows);
        if (!rows) return 0;
        s->rows = rows;
        s->row_room = room;
    }
    s->rows[s->row_count++] = r;
    return 1;
odd:
    s->odd = 1;
    return 1;
}

/* One element at *at, where no blank is. */
static status element(scanner *s, const uint8_t **at, const uint8_t *end, int canonical)
{
    static const uint8_t none = 0;
    value fields[FIELDS];
    uint8_t kind;
    status found;
    s->odd = 0;
    if (**at != '{') {
        found = **at == '[' ? container(s, at, end) : scalar(s, at, end, &kind);
        s->odd = 1;
        return found;
    }
    for (int i = 0; i < FIELDS; i++) fields[i] = (value){&none, 0, ABSENT};
    ++*at;
    if ((found = members(s, at, end, fields))) return found;
    return s->odd || take(s, fields, canonical) ? DONE : NO_MEMORY;
}

static int32_t elements(scanner *s, size_t length, size_t start, int canonical)
{
    const uint8_t *p = s->text + start, *end = s->text + length;
    for (;;) {
        while (p < end && (*p == ',' || *p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
        s->result.consumed = s->result.end = (uint64_t)(p - s->text);
        if (p == end) return STOP_MORE;
        if (*p == ']') return STOP_CLOSED;
        switch (element(s, &p, end, canonical)) {
        case DONE:
            break;
        case MORE:
            return STOP_MORE;
        case BROKEN:
            return STOP_BROKEN;
        case NO_MEMORY:
            return STOP_NO_MEMORY;
        }
        if (s->odd) {
            s->result.end = (uint64_t)(p - s->text);
            return STOP_ODD;
        }
    }
}

DSV4_PUBLIC scanner *dsv4_scanner_new(void)
{
    scanner *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->last_track = -1;
    s->last_cat = -1;
    if (table_init(&s->words) && table_init(&s->tracks)) return s;
    table_free(&s->words);
    table_free(&s->tracks);
    free(s);
    return NULL;
}

DSV4_PUBLIC void dsv4_scanner_free(scanner *s)
{
    if (!s) return;
    table_free(&s->words);
    table_free(&s->tracks);
    free(s->rows);
    free(s->nesting);
    free(s->key);
    free(s);
}

DSV4_PUBLIC const scan_result *dsv4_scan(scanner *s, const uint8_t *text, uint64_t length, uint64_t start,
                                         int32_t canonical)
{
    scan_result *r = &s->result;
    s->text = text;
    s->row_count = 0;
    r->stop = elements(s, length, start, canonical);
    r->rows = s->rows;
    r->row_count = s->row_count;
    r->words = s->words.bytes;
    r->word_ends = s->words.ends;
    r->word_count = s->words.count;
    r->tracks = s->tracks.bytes;
    r->track_ends = s->tracks.ends;
    r->track_count = s->tracks.count;
    return r;
}
