// A guest without an operating system, for QEMU's `virt` machine. It says "up" on the serial port, and a numbered tick
// each second; in between, the processor sleeps until its timer calls. The power button is a key on the GPIO pins,
// looked at with each tick; it turns the machine off.
//
//   as -o guest.o aarch64.s && ld -Ttext 0 -e 0 -o guest.elf guest.o && objcopy -O binary guest.elf guest.bin

    mov     x19, #0x09000000            // serial port
    movz    x20, #0x0903, lsl #16       // GPIO
    movz    x21, #0x0800, lsl #16       // interrupts: the distributor
    movz    x22, #0x0801, lsl #16       // interrupts: the processor's side
    mov     w0, #1
    str     w0, [x21]
    mov     w1, #1 << 27                // the virtual timer's interrupt wakes the processor; it is never taken
    str     w1, [x21, #0x100]
    mov     w1, #0xff
    str     w1, [x22, #4]
    str     w0, [x22]
    mov     w1, #8                      // a rising edge on pin 3 is remembered
    str     w1, [x20, #0x40c]
    adr     x0, up
    bl      say
    mrs     x23, cntfrq_el0
    mrs     x24, cntvct_el0
    mov     x0, #1
    msr     cntv_ctl_el0, x0

next:
    add     x24, x24, x23
    msr     cntv_cval_el0, x24
rest:
    wfi
    mrs     x0, cntvct_el0
    cmp     x0, x24
    b.lo    rest
    adr     x1, digits
    mov     x2, #4
count:
    ldrb    w3, [x1, x2]
    add     w3, w3, #1
    cmp     w3, #'9'
    b.ls    put
    mov     w3, #'0'
    strb    w3, [x1, x2]
    subs    x2, x2, #1
    b.pl    count
    b       counted
put:
    strb    w3, [x1, x2]
counted:
    adr     x0, word
    bl      say
    ldr     w1, [x20, #0x414]           // has the power button been pressed?
    tbz     w1, #3, next
    adr     x0, bye
    bl      say
    movz    w0, #0x8400, lsl #16        // then off: PSCI SYSTEM_OFF
    movk    w0, #8
    hvc     #0
    b       next

say:
    ldrb    w1, [x0], #1
    cbz     w1, said
full:
    ldr     w2, [x19, #0x18]
    tbnz    w2, #5, full
    str     w1, [x19]
    b       say
said:
    ret

up:     .asciz "up\n"
word:   .ascii "tick "
digits: .ascii "00000"
        .asciz "\n"
bye:    .asciz "power button\n"
