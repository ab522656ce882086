# A program that enters and leaves one function, `work`, in every way there is: what `auxtrail record --filter` must show of it.
#   ways            calls work(1000) to work(1), those below 501 by falling into it
#   ways stop       the same, and calls `stopper` before work(500)
# What work(i) does goes by i & 3: 0 a conditional leaves, 1 a jump, 2 a call and an indirect call, which come back, then a
# return, 3 a system call, then it runs out at its end. Of 2 and 3 each touches a fresh page, outside and inside.
        .text
# The labels are for filter_test.py.
        .globl  main
        .type   work, @function
        .type   stopper, @function
main:
        pushq   %rbx
        pushq   %r12
        pushq   %r13
        xorl    %r12d, %r12d
        cmpl    $2, %edi
        sete    %r12b
        movl    $9, %eax                # mmap
        xorl    %edi, %edi
        movl    $600 * 4096, %esi
        movl    $3, %edx
        movl    $0x22, %r10d
        movl    $-1, %r8d
        xorl    %r9d, %r9d
        syscall
        movq    %rax, %r13
        movl    $1000, %ebx
1:      movl    %ebx, %edi
        cmpl    $500, %ebx
        jle     2f
calls_work:
        call    work
work_back:
        jmp     3f
2:      jne     4f
        testl   %r12d, %r12d
        jz      4f
calls_stopper:
        call    stopper
4:
falls_into_work_call:
        call    falls_into_work
falls_into_work_back:
3:      decl    %ebx
        jnz     1b
        popq    %r13
        popq    %r12
        popq    %rbx
        xorl    %eax, %eax
        ret

        .balign 64
falls_into_work:
        nop
work:
        movl    %edi, %ecx
        andl    $7, %ecx
work_again:
        decl    %ecx
work_loop:
        jns     work_again
calls_inner:
        call    inner
after_inner:
        movl    %edi, %eax
        andl    $3, %eax
leaves_if:
        jz      cold
        cmpl    $1, %eax
to_jump:
        je      leaves_jump
        cmpl    $2, %eax
to_call:
        je      leaves_call
work_touch:
        movb    $1, (%r13)
        addq    $4096, %r13
to_ask: jmp     ask
leaves_jump:
        jmp     tail
leaves_call:
        call    helper
after_call:
        leaq    helper2(%rip), %rax
leaves_indirect:
        call    *%rax
after_indirect:
leaves_return:
        ret
inner:  nop
inner_return:
        ret
ask:    movl    $110, %eax              # getppid
asks:   syscall
after_ask:
        nop
        .size   work, . - work
behind: ret

cold:   ret
tail:   ret
helper:
helper_touch:
        movb    $1, (%r13)
        addq    $4096, %r13
helper2:
        ret

stopper:
        ret
        .size   stopper, . - stopper
        .section .note.GNU-stack,"",@progbits
