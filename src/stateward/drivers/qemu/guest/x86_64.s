# A guest of one boot sector. It says "up" on the first serial port, and a numbered tick each second; in between, the
# processor sleeps: of all interrupts only that of the clock (once a second) is let through. The power button is looked
# at with each tick, and turns the machine off.
#
#   as --32 -o guest.o x86_64.s && ld -m elf_i386 -Ttext 0x7c00 -e 0 --oformat binary -o guest.bin guest.o

    .code16

    cli
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7c00, %sp
    ljmp $0, $begin

begin:
    movw $tick, 0x70 * 4            # the clock's interrupt
    movw %ax, 0x70 * 4 + 2
    movb $0xfb, %al                 # none on the first controller but the second's
    outb %al, $0x21
    movb $0xfe, %al                 # none on the second but the clock's
    outb %al, $0xa1
    movb $0x8b, %al                 # clock, register B: an interrupt at the end of each update
    outb %al, $0x70
    movb $0x12, %al
    outb %al, $0x71
    call settle
    movw $0x602, %dx                # the power button shall be told
    movw $0x0100, %ax
    outw %ax, %dx
    movw $up, %si
    call say
    sti
rest:
    hlt
    jmp rest

tick:
    call settle
    movb $0x20, %al                 # the end of the interrupt, for both controllers
    outb %al, $0xa0
    outb %al, $0x20
    movw $digits + 4, %di
count:
    incb (%di)
    cmpb $'9', (%di)
    jbe counted
    movb $'0', (%di)
    decw %di
    cmpw $digits, %di
    jae count
counted:
    movw $word, %si
    call say
    movw $0x600, %dx                # has the power button been pressed?
    inw %dx, %ax
    testb $1, %ah
    jz back
    movw $bye, %si
    call say
    movw $0x604, %dx                # then off
    movw $0x2000, %ax
    outw %ax, %dx
back:
    iret

settle:                             # reading the clock's register C lets its next interrupt come
    movb $0x0c, %al
    outb %al, $0x70
    inb $0x71, %al
    ret

say:
    lodsb
    testb %al, %al
    jz said
    movb %al, %bl
    movw $0x3fd, %dx
full:
    inb %dx, %al
    testb $0x20, %al
    jz full
    movb %bl, %al
    movw $0x3f8, %dx
    outb %al, %dx
    jmp say
said:
    ret

up:     .asciz "up\n"
word:   .ascii "tick "
digits: .ascii "00000"
        .asciz "\n"
bye:    .asciz "power button\n"

    .org 510
    .word 0xaa55
