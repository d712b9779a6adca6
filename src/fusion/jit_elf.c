/* A small reader of cubins, which are ELF files: .nv.info holds registers and stack frames by symbol,
 * .nv.shared.<kernel> has the size of static shared memory. Nothing outside the given bytes is read, whatever the file
 * says. */
#include "jit_elf.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

enum { INFO_SIZED = 4, INFO_FRAME_SIZE = 0x11, INFO_REGISTERS = 0x2f };

typedef struct elf {
    const unsigned char *data;
    size_t bytes, sections;
    Elf64_Ehdr head;
    const char *names;
    size_t names_bytes;
} elf;

static int inside(const elf *e, uint64_t offset, uint64_t bytes)
{
    return offset <= e->bytes && bytes <= e->bytes - offset;
}

static int section(const elf *e, size_t i, Elf64_Shdr *out)
{
    uint64_t at = e->head.e_shoff + i * sizeof *out;
    if (i >= e->sections || !inside(e, at, sizeof *out))
        return 0;
    memcpy(out, e->data + at, sizeof *out);
    return out->sh_type == SHT_NOBITS || inside(e, out->sh_offset, out->sh_size);
}

static const char *name_at(const char *table, size_t bytes, uint64_t at)
{
    return at < bytes && memchr(table + at, 0, bytes - at) ? table + at : "";
}

static int open_elf(elf *e, const void *data, size_t bytes)
{
    Elf64_Shdr names;
    *e = (elf){.data = data, .bytes = bytes};
    if (bytes < sizeof e->head)
        return 0;
    memcpy(&e->head, data, sizeof e->head);
    if (memcmp(e->head.e_ident, ELFMAG, SELFMAG) != 0 || e->head.e_ident[EI_CLASS] != ELFCLASS64 ||
        e->head.e_shentsize != sizeof(Elf64_Shdr))
        return 0;
    e->sections = e->head.e_shnum;
    if (!section(e, e->head.e_shstrndx, &names) || names.sh_type == SHT_NOBITS)
        return 0;
    e->names = (const char *)e->data + names.sh_offset;
    e->names_bytes = (size_t)names.sh_size;
    return 1;
}

/* Number of the symbol called `kernel`, or -1. */
static int64_t symbol(const elf *e, const char *kernel)
{
    for (size_t i = 0; i < e->sections; i++) {
        Elf64_Shdr table, strings;
        if (!section(e, i, &table) || table.sh_type != SHT_SYMTAB || !section(e, table.sh_link, &strings))
            continue;
        for (uint64_t s = 0; s < table.sh_size / sizeof(Elf64_Sym); s++) {
            Elf64_Sym sym;
            memcpy(&sym, e->data + table.sh_offset + s * sizeof sym, sizeof sym);
            if (!strcmp(name_at((const char *)e->data + strings.sh_offset, (size_t)strings.sh_size, sym.st_name),
                        kernel))
                return (int64_t)s;
        }
    }
    return -1;
}

/* Entries: format, attribute, 16 bits of value or size, then as many bytes if the format says so. */
static void read_info(const unsigned char *p, size_t bytes, int64_t sym, int *registers, int *local)
{
    size_t at = 0;
    while (at + 4 <= bytes) {
        unsigned format = p[at], attribute = p[at + 1], size = p[at + 2] | (unsigned)p[at + 3] << 8;
        at += 4;
        if (format != INFO_SIZED)
            continue;
        if (size > bytes - at)
            return;
        uint32_t pair[2] = {0, 0};
        if (size >= sizeof pair) {
            memcpy(pair, p + at, sizeof pair);
            if (pair[0] == (uint64_t)sym && attribute == INFO_REGISTERS)
                *registers = (int)pair[1];
            if (pair[0] == (uint64_t)sym && attribute == INFO_FRAME_SIZE)
                *local = (int)pair[1];
        }
        at += size;
    }
}

void mfi_cubin_resources(const void *cubin, size_t bytes, const char *kernel, int *registers, int *shared, int *local)
{
    elf e;
    *registers = *shared = *local = -1;
    if (!open_elf(&e, cubin, bytes))
        return;
    int64_t sym = symbol(&e, kernel);
    *shared = sym >= 0 ? 0 : -1;
    for (size_t i = 0; i < e.sections && sym >= 0; i++) {
        Elf64_Shdr s;
        if (!section(&e, i, &s))
            continue;
        const char *name = name_at(e.names, e.names_bytes, s.sh_name);
        if (!strcmp(name, ".nv.info") && s.sh_type != SHT_NOBITS)
            read_info(e.data + s.sh_offset, (size_t)s.sh_size, sym, registers, local);
        else if (!strncmp(name, ".nv.shared.", 11) && !strcmp(name + 11, kernel))
            *shared = (int)s.sh_size;
    }
}
