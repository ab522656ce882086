// Pieces of code whose superblocks superblock_test.cc looks at. In a library of their own: the
// unit does not translate what shares a file with it.
// Shapes reach each other by .Lname: by the global name they might, as the linker likes, by way of a procedure linkage table.
#define SHAPE(name) .globl name; .type name, @function; name: .L##name:

        .text

SHAPE(shape_loop)  // loops to its first instruction
1:      decq    %rdi
        jnz     1b
        ret

SHAPE(shape_inner_loop)  // loops to another one
        movq    %rdi, %rax
1:      incq    %rax
        decq    %rdi
        jnz     1b
        ret

SHAPE(shape_forward)
        testq   %rdi, %rdi
        je      1f
        incq    %rax
1:      ret

SHAPE(shape_call)
        call    leaf
        ret
leaf:
        incq    %rax
        jmp     2f
        ud2
2:      ret

SHAPE(shape_call_again)
        call    leaf
        ret

SHAPE(shape_long)
        .rept   100
        incq    %rax
        .endr
        ret

SHAPE(shape_conditionals)  // more of them than a path holds
        .rept   12
        je      1f
        .endr
1:      ret

SHAPE(shape_syscall)
        incq    %rax
        syscall
        ret

SHAPE(shape_jrcxz)
        jrcxz   1f
        incq    %rax
1:      ret

SHAPE(shape_endless)
1:      incq    %rax
        jmp     1b

SHAPE(shape_hot)  // for hot_code_test.cc, as are the next
        testq   %rdi, %rdi
        je      1f
        incq    %rax
        ret
1:      decq    %rax
        ret

SHAPE(shape_cold)
        testq   %rdi, %rdi
        je      1f
        incq    %rax
        ret
1:      decq    %rax
        ret

SHAPE(shape_through)  // as a procedure linkage table does
        jmpq    *%rax
SHAPE(shape_through_target)
        incq    %rax
        ret

SHAPE(shape_nested)
        incq    %rax
        call    1f
        ret
1:      call    2f
        ret
2:      testq   %rdi, %rdi
        je      3f
        ret
3:      ret

SHAPE(shape_filtered)  // what is traced in filtered_log_test.cc, up to shape_outside
        testq   %rdi, %rdi
        je      .Lshape_outside
        incq    %rax
        ret
SHAPE(shape_filtered_jump)
        incq    %rax
        jmp     .Lshape_outside
SHAPE(shape_filtered_call)
        call    .Lshape_outside
SHAPE(shape_filtered_after)
        ret
SHAPE(shape_filtered_local)
        call    4f
        je      .Lshape_filtered
SHAPE(shape_filtered_local_end)
        ret
4:      ret
SHAPE(shape_filtered_not_taken)
        testq   %rdi, %rdi
        je      .Lshape_filtered
SHAPE(shape_outside)
        ret
SHAPE(shape_outside_falls)  // and ends the trace from the next on
        incq    %rax
SHAPE(shape_stopped)
        ret

SHAPE(shape_reads_pc)
        call    1f
1:      popq    %rax
        ret

SHAPE(shape_dispatch_one)  // an interpreter's operations, and its one jump to the next
        incq    %rax
        jmp     .Lshape_dispatch
SHAPE(shape_dispatch_other)
        decq    %rax
SHAPE(shape_dispatch)
        jmpq    *%rdx

SHAPE(shape_chain)  # two indirect jumps, a conditional between them
        jmpq    *%rax
SHAPE(shape_chain_middle)
        testq   %rdi, %rdi
        je      .Lshape_chain_end
        jmpq    *%rdx
SHAPE(shape_chain_end)
        ret

SHAPE(shape_endlessly_straight)
        .rept   400
        incq    %rax
        .endr
        ret

        .section .note.GNU-stack, "", @progbits
