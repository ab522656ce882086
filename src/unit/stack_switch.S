# See stack_switch.h.
        .text

        .globl  auxtrail_call_on_stack
        .hidden auxtrail_call_on_stack
        .type   auxtrail_call_on_stack, @function
auxtrail_call_on_stack:
        .cfi_startproc
        endbr64
        pushq   %rbp
        pushq   %rbx
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        movq    %rsp, -16(%rcx)
        leaq    -16(%rcx), %rsp
        call    *%rdx
        .globl  auxtrail_call_on_stack_return
        .hidden auxtrail_call_on_stack_return
auxtrail_call_on_stack_return:
        movq    (%rsp), %rsp
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbx
        popq    %rbp
        ret
        .cfi_endproc
        .size   auxtrail_call_on_stack, .-auxtrail_call_on_stack

        .globl  auxtrail_signal_entry
        .hidden auxtrail_signal_entry
        .type   auxtrail_signal_entry, @function
auxtrail_signal_entry:
        .cfi_startproc
        endbr64
        pushq   %rdi
        pushq   %rsi
        pushq   %rdx
        .cfi_adjust_cfa_offset 24
        cld
        pushfq                          # the kernel leaves a program's alignment check on
        andq    $~0x40000, (%rsp)
        popfq
        call    auxtrail_route_signal
        popq    %rdx
        popq    %rsi
        popq    %rdi
        .cfi_adjust_cfa_offset -24
        testq   %rax, %rax
        jz      1f
        jmpq    *%rax
1:      ret
        .cfi_endproc
        .size   auxtrail_signal_entry, .-auxtrail_signal_entry

# Return from a signal. Debuggers and unwinders know this byte sequence, so it has no unwind entry of its own.
        .globl  auxtrail_restore_rt
        .hidden auxtrail_restore_rt
        .type   auxtrail_restore_rt, @function
        nop
auxtrail_restore_rt:
        movq    $15, %rax
        syscall
        .size   auxtrail_restore_rt, .-auxtrail_restore_rt
        .globl  auxtrail_signal_code_end
        .hidden auxtrail_signal_code_end
auxtrail_signal_code_end:

        .globl  auxtrail_signal_return
        .hidden auxtrail_signal_return
        .type   auxtrail_signal_return, @function
auxtrail_signal_return:
        .cfi_startproc
        movq    %rdx, %rax
        shrq    $32, %rdx
        xsave64 (%rsi)
        movq    %rdi, %rsp
        movl    $15, %eax
        syscall
        ud2
        .cfi_endproc
        .size   auxtrail_signal_return, .-auxtrail_signal_return

        .section .note.GNU-stack,"",@progbits
