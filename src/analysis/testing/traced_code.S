// A known piece of code for the tests: a loop of three rounds that calls a leaf. It is never run; the tests
// write the packets that a run of it would give.
        .text
        .globl  traced_main
        .type   traced_main, @function
traced_main:
        mov     $3, %ecx
.Lloop:
        call    traced_leaf
.Lafter:
        dec     %ecx
.Ljnz:
        jnz     .Lloop
.Lend:
        nop
        ret
        .size   traced_main, . - traced_main

        .globl  traced_leaf
        .type   traced_leaf, @function
traced_leaf:
        nop
.Lret:
        ret
        .size   traced_leaf, . - traced_leaf

        .section .rodata
        .balign 16                      // as the psABI has it for arrays of 16 bytes and more
        .globl  traced_offsets          // from traced_main, in the order of struct TracedCode
traced_offsets:
        .quad   .Lloop - traced_main, .Lafter - traced_main, .Ljnz - traced_main
        .quad   .Lend - traced_main, traced_leaf - traced_main, .Lret - traced_main
        .section .note.GNU-stack, "", @progbits
