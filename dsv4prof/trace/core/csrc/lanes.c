/* Lanes of overlapping spans, and the span that is open at a time; core/plain_lanes.py does the same.
 *
 * A lane is a stack of open spans, linked by `below`, and known by its top's end; an empty one's is later than any
 * time. A tree over the tops finds the first lane in which a span nests. A top may be over by now, which only looking
 * at it tells: so a node keeps the least top, which may be over, and the greatest, in which the span may nest.
 */
#include <stdlib.h>

#include "core.h"

#define EMPTY (-1)

typedef struct {
    int64_t least, most;
} node;

typedef struct {
    const int64_t *end;
    int64_t *below;
    int64_t *tops; /* the span on top of each lane */
    node *tree;    /* node 1 is the root, lane i is node size + i */
    size_t count, size;
} lanes;

static int64_t pop_over(const lanes *l, int64_t top, int64_t start)
{
    while (top != EMPTY && l->end[top] <= start) top = l->below[top];
    return top;
}

static void set_top(lanes *l, size_t lane, int64_t top)
{
    size_t at = lane + l->size;
    int64_t end = top == EMPTY ? INT64_MAX : l->end[top];
    l->tops[lane] = top;
    l->tree[at] = (node){end, end};
    while (at /= 2) {
        const node *left = l->tree + 2 * at, *right = left + 1;
        l->tree[at] = (node){left->least < right->least ? left->least : right->least,
                             left->most > right->most ? left->most : right->most};
    }
}

static int widen(lanes *l)
{
    size_t size = l->size ? l->size * 2 : 16;
    node *tree = realloc(l->tree, 2 * size * sizeof *tree);
    if (!tree) return 0;
    l->tree = tree;
    int64_t *tops = realloc(l->tops, size * sizeof *tops);
    if (!tops) return 0;
    l->tops = tops;
    l->size = size;
    for (size_t i = 0; i < 2 * size; i++) tree[i] = (node){INT64_MAX, INT64_MAX};
    for (size_t i = 0; i < l->count; i++) set_top(l, i, tops[i]);
    return 1;
}

/* The first lane in which a span may nest, or one more than there are. */
static size_t first_lane(const lanes *l, int64_t start, int64_t end)
{
    size_t at = 1;
    if (!l->size || (l->tree[1].least > start && l->tree[1].most < end)) return l->count;
    while (at < l->size) {
        at *= 2;
        if (l->tree[at].least > start && l->tree[at].most < end) at++;
    }
    at -= l->size;
    return at < l->count ? at : l->count;
}

/* The lane of span i, which nests in none of the first; -1 without memory. */
static int64_t other_lane(lanes *l, int64_t i, int64_t start)
{
    for (;;) {
        size_t lane = first_lane(l, start, l->end[i]);
        if (lane == l->count) {
            if (l->count == l->size && !widen(l)) return -1;
            l->tops[l->count++] = EMPTY;
        }
        int64_t top = pop_over(l, l->tops[lane], start);
        if (top == EMPTY || l->end[i] <= l->end[top]) {
            l->below[i] = top;
            set_top(l, lane, i);
            return (int64_t)lane;
        }
        set_top(l, lane, top);
    }
}

/* Groups are bounds[j]:bounds[j + 1]; `out` holds 1s. False without memory. */
DSV4_PUBLIC int32_t dsv4_split_lanes(const int64_t *start, const int64_t *end, uint64_t count, const int64_t *bounds,
                                     uint64_t bound_count, int32_t *out)
{
    lanes l = {.end = end};
    int32_t done = 0;
    l.below = malloc((count + 1) * sizeof *l.below);
    if (!l.below) goto out;
    for (uint64_t j = 0; j + 1 < bound_count; j++) {
        int64_t first = EMPTY;
        /* Nearly every file's spans nest in lane 1, which is why only the others pay for a tree. */
        l.count = l.size = 0;
        for (int64_t i = bounds[j]; i < bounds[j + 1]; i++) {
            first = pop_over(&l, first, start[i]);
            if (first == EMPTY || end[i] <= end[first]) {
                l.below[i] = first;
                first = i;
                continue;
            }
            int64_t lane = other_lane(&l, i, start[i]);
            if (lane < 0) goto out;
            out[i] = (int32_t)(lane + 2);
        }
    }
    done = 1;
out:
    free(l.below);
    free(l.tops);
    free(l.tree);
    return done;
}

/* For each time the span opened last that is still open, or -1. False without memory. */
DSV4_PUBLIC int32_t dsv4_innermost(const int64_t *start, const int64_t *end, uint64_t count, const int64_t *at,
                                   uint64_t times, int64_t *out)
{
    int64_t *below = malloc((count + 1) * sizeof *below), top = EMPTY;
    uint64_t next = 0;
    if (!below) return 0;
    for (uint64_t i = 0; i < times; i++) {
        for (; next < count && start[next] <= at[i]; next++) {
            below[next] = top;
            top = (int64_t)next;
        }
        while (top != EMPTY && end[top] <= at[i] && start[top] < at[i]) top = below[top];
        out[i] = top;
    }
    free(below);
    return 1;
}
